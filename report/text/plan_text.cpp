// One plan: headline, memory by stage and category, time part by part.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/base/parse_quantity.hpp"
#include "core/base/text.hpp"
#include "planner/space/legality.hpp"
#include "report/format.hpp"
#include "report/plan_files.hpp"
#include "report/text/plan_economics_text.hpp"
#include "report/text/table.hpp"
#include "report/text/text.hpp"
#include "report/trade_offs.hpp"

namespace echelon {

namespace {

/// "475", "0.067".
std::string teraflops(FlopsPerSecond rate) {
  constexpr double kFew = 10;
  const double value = rate.in(1_TFLOPS);
  return value < kFew ? fmt::format("{:.2g}", value) : fmt::format("{:.0f}", value);
}

/// "0", or "1-6" for neighbours that are alike.
struct StageRange {
  std::size_t first = 0;
  std::size_t last = 0;
};

template <class T>
std::vector<StageRange> equal_ranges(const std::vector<T>& stages) {
  std::vector<StageRange> ranges;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    if (!ranges.empty() && stages[ranges.back().first] == stages[s])
      ranges.back().last = s;
    else
      ranges.push_back({s, s});
  }
  return ranges;
}

std::string stage_name(const StageRange& range) {
  if (range.first == range.last) return std::to_string(range.first);
  return fmt::format("{}-{}", range.first, range.last);
}

/// Width of the longest bar next to a name, a number and a share.
int bar_columns(const TextStyle& style) {
  constexpr int kOthers = 45;
  return std::clamp(style.width - kOthers, 10, 40);
}

std::string memory_line(const PlanRequest& request, const Candidate& candidate,
                        const TextStyle& style) {
  const MemoryPrediction& memory = candidate.prediction.memory;
  std::string line = fmt::format("{} of {} at the peak, {} reserved; ", with_gib(memory.peak),
                                 with_gib(memory.capacity), with_gib(memory.peak_reserved));
  if (request.max_memory) {
    line += fmt::format("limit {} set by --max-memory; ", with_gib(*request.max_memory));
  }
  const Bytes spare = request.capacity() - memory.peak_reserved;
  const std::string outcome =
      spare >= Bytes{} ? with_gib(spare) + " to spare" : with_gib(-spare) + " too much";
  const bool likely = candidate.score.fits_probability.value_or(1) >= kLeastProbability;
  const Paint paint = !candidate.fits ? Paint::bad : likely ? Paint::good : Paint::warning;
  return line +
         painted(outcome + chance_of(candidate) + (candidate.fits ? "" : without_savings(request)),
                 paint, style);
}

/// Host memory that the plan needs, which the user's nodes may not have; "" without offload.
std::string host_memory_line(const PlanRequest& request, const ParallelPlan& plan) {
  if (plan.offload_optimizer <= 0) return {};
  const Bytes needed =
      offloaded_states(request.model, request.job, request.cluster, request.framework, plan);
  return fmt::format("{} of the optimizer in the memory of each host, {} by the description of {}",
                     with_gib(needed), with_gib(request.cluster.node().cpu_memory),
                     printable(request.cluster.machine().name));
}

/// One kind of stage: categories as rows, with their shares, like the table of times.
std::string memory_by_category(const Prediction& costs, const TextStyle& style) {
  const MemoryUnit unit = memory_unit(costs.peak);
  Table table({{"", Table::Align::left, 0}, {""}, {""}, {"", Table::Align::left, 1}});
  for (const MemoryPart& part : parts_of(costs.stages.front())) {
    const double share = part.bytes / costs.peak;
    table.add({std::string(part.name), unit.of(part.bytes), percent(share),
               Cell(bar(share, bar_columns(style), style), Paint::accent)});
  }
  table.add({Cell("total", Paint::bold), Cell(unit.of(costs.peak), Paint::bold), "", ""});
  return table.text(style);
}

/// Stages as rows; of very long pipelines the first, the fullest and the last.
std::string memory_by_stage(const Prediction& costs, const std::vector<StageRange>& ranges,
                            const TextStyle& style) {
  constexpr std::size_t kMostRows = 16;
  const MemoryUnit unit = memory_unit(costs.peak);
  // Small parts share one column if the width is too small, so that the parts still add up.
  constexpr int kAllColumns = 98;
  const bool whole = style.width >= kAllColumns;
  std::vector<Table::Column> columns = {{"stage", Table::Align::left, 0},
                                        {"weights", Table::Align::right, 1},
                                        {"gradients", Table::Align::right, 1},
                                        {"optimizer", Table::Align::right, 1},
                                        {"activations"}};
  if (whole)
    columns.insert(columns.end(), {{"workspace"}, {"communication"}, {"CUDA context"}});
  else
    columns.push_back({"other"});
  columns.push_back({"total"});
  Table table(std::move(columns));
  std::size_t left_out = 0;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const StageRange& range = ranges[i];
    const MemoryBreakdown& stage = costs.stages[range.first];
    const bool fullest = stage.total() == costs.peak;
    const bool at_an_end = i < kMostRows / 2 || i + kMostRows / 4 >= ranges.size();
    if (ranges.size() > kMostRows && !fullest && !at_an_end) {
      left_out += range.last - range.first + 1;
      continue;
    }
    std::vector<Cell> row = {stage_name(range)};
    for (const Bytes part : {stage.weights, stage.gradients, stage.optimizer, stage.activations}) {
      row.emplace_back(unit.of(part));
    }
    if (whole) {
      for (const Bytes part : {stage.workspace, stage.communication, stage.context}) {
        row.emplace_back(unit.of(part));
      }
    } else {
      row.emplace_back(unit.of(stage.workspace + stage.communication + stage.context));
    }
    row.emplace_back(unit.of(stage.total()), fullest ? Paint::bold : Paint::plain);
    table.add(std::move(row));
  }
  std::string out = table.text(style);
  if (left_out > 0) {
    out += folded(fmt::format("{} between them are left out; --json lists all.",
                              counted(static_cast<std::int64_t>(left_out), "stage")),
                  "  ", style);
  }
  return out;
}

/// Work and waiting times of each stage; of very long pipelines the first and the last.
std::string time_by_stage(const Prediction& costs, bool in_seconds, const TextStyle& style) {
  constexpr std::size_t kMostRows = 16;
  Table table({{"stage", Table::Align::left, 0},
               {"compute", Table::Align::right, 1},
               {"communication"},
               {"fill/drain"},
               {"imbalance"},
               {"other", Table::Align::right, 1},
               {"idle"}});
  const auto shown = [&](Seconds time) {
    return in_seconds ? fmt::format("{:.3f}", time.in(kSecond))
                      : fmt::format("{:.2f}", time.in(1_ms));
  };
  const std::vector<StageRange> ranges = equal_ranges(costs.stage_times);
  std::size_t left_out = 0;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const bool at_an_end = i < kMostRows / 2 || i + kMostRows / 2 >= ranges.size();
    if (!at_an_end) {
      left_out += ranges[i].last - ranges[i].first + 1;
      continue;
    }
    const StageTime& stage = costs.stage_times[ranges[i].first];
    table.add({stage_name(ranges[i]), shown(stage.compute + stage.recompute),
               shown(stage.communication_wait), shown(stage.fill_drain), shown(stage.imbalance),
               shown(stage.stragglers + stage.optimizer + stage.host + stage.data),
               percent(stage.idle() / stage.total())});
  }
  std::string out = heading(fmt::format("Time of each stage, {}", in_seconds ? "s" : "ms"), style) +
                    table.text(style);
  if (left_out > 0) {
    out += folded(fmt::format("{} between them are left out; --json lists all.",
                              counted(static_cast<std::int64_t>(left_out), "stage")),
                  "  ", style);
  }
  return out;
}

}  // namespace

std::string shell_quoted(std::string_view word) {
  const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("-_./,:=+@%").find(c) != std::string_view::npos;
  });
  if (plain) return std::string(word);
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string job_text(const PlanRequest& request, const TextStyle& style) {
  const ClusterTopology& cluster = request.cluster;
  const std::string_view times = glyph("×", "x", style);
  const std::string machine =
      cluster.nodes() > 1
          ? fmt::format("{} nodes {} {}", grouped(cluster.nodes()), times, cluster.gpus_per_node())
          : std::string("1 node");
  std::string out = folded(
      fmt::format("{} ({} parameters) on {} {} ({}, {})",
                  painted(request.model.name, Paint::bold, style),
                  human_count(static_cast<double>(request.model.parameters())),
                  counted(cluster.gpus(), "GPU"), cluster.gpu().name, cluster.name(), machine),
      "", style);
  out += folded(
      fmt::format("sequence {}, global batch {} = {} tokens, {}, {} attention, framework {}",
                  grouped(request.job.sequence), counted(request.job.global_batch, "sequence"),
                  human_count(request.job.tokens_per_step()), request.job.precision.name,
                  request.job.flash_attention ? "flash" : "materialised", request.framework.name) +
          (request.job.layer_code != LayerCode::fused
               ? fmt::format(", layers of {}", name_of(request.job.layer_code))
               : "") +
          (request.job.expert_imbalance > 1
               ? fmt::format(", experts {:.3g} x unequal", request.job.expert_imbalance)
               : ""),
      "", style);
  if (request.job.adapters) {
    const auto count = static_cast<double>(adapter_parameters(
        request.model, *request.job.adapters, request.framework.adapts_each_module));
    const auto& quantized = request.job.quantized_weights;
    out += folded(
        fmt::format("LoRA of rank {} on {}: {} parameters are trained, all others frozen{}",
                    request.job.adapters->rank, text_of(request.job.adapters->targets),
                    human_count(count), quantized ? ", of layers in " + quantized->text() : ""),
        "", style);
  }
  if (request.job.documents) {
    const double left = request.job.document_span() / request.job.sequence;
    out += folded(fmt::format("packed with documents of {}: {} of full attention left",
                              printable(request.job.documents->text), percent(left)),
                  "", style);
  }
  return out;
}

std::string headline(const PlanRequest& request, const Candidate& candidate, std::string_view title,
                     const TextStyle& style) {
  const PlanCosts& p = candidate.prediction;
  const FlopsPerSecond peak = request.cluster.gpu().peak(request.job.precision.compute);
  const std::string_view dash = glyph("–", "-", style);
  std::string out = "\n";
  if (!title.empty()) {
    out += folded(painted(described(candidate.plan, style), Paint::accent, style),
                  fmt::format("{:<11}", title), style);
  }
  out += folded(
      fmt::format("{} ({} {} {}, {}), {} tokens/s, {} per GPU",
                  painted(duration(p.time.step), Paint::bold, style), duration(p.time.low), dash,
                  duration(p.time.high), name_of(p.evidence), human_count(p.tokens_per_second),
                  human_count(p.tokens_per_second / request.cluster.gpus())),
      "step       ", style);
  if (candidate.plan.pp > 1) {
    out += folded(
        candidate.simulated
            ? fmt::format("event by event; in closed form {} ({})", duration(p.time.closed_form),
                          signed_percent(p.time.closed_form / p.time.step - 1))
            : "no: too many microbatches; the step is that of the closed form",
        "simulated  ", style);
  }
  out += folded(
      fmt::format("{} = {} TFLOP/s per GPU ({}) of {} "
                  "(dense {})",
                  painted(percent(p.mfu), Paint::bold, style), teraflops(p.model_flops_per_gpu),
                  flops_formula(request.model, request.job), teraflops(peak),
                  request.cluster.gpu().peak_format(request.job.precision.compute)),
      "MFU        ", style);
  constexpr double kWorthSaying = 0.05;
  if (const double share = causal_share(request.model, request.job); share < 1 - kWorthSaying) {
    out +=
        folded(fmt::format("{} = {} TFLOP/s by Megatron-LM's log, which counts causal scores alone",
                           percent(share * p.mfu), teraflops(share * p.model_flops_per_gpu)),
               "           ", style);
  }
  out += folded(memory_line(request, candidate, style), "memory     ", style);
  const std::string host = host_memory_line(request, candidate.plan);
  if (!host.empty()) out += folded(host, "host       ", style);
  const std::string money = economics_line(request, candidate);
  if (!money.empty()) out += folded(money, "training   ", style);
  const std::string failures = failures_line(request, candidate.prediction.time.step);
  if (!failures.empty()) out += folded(failures, "goodput    ", style);
  return out;
}

std::string remarks_text(const PlanRequest& request, const Candidate& candidate,
                         const TextStyle& style) {
  std::string out;
  for (const FrameworkRemark& remark : remarks_of(request, candidate.plan)) {
    out += folded(remark.text, fmt::format("{:<11}", name_of(remark.kind)), style);
  }
  return out;
}

std::string memory_text(const Prediction& costs, const TextStyle& style) {
  const std::vector<StageRange> ranges = equal_ranges(costs.stages);
  return heading(std::string("Memory of one GPU, ") + memory_unit(costs.peak).name, style) +
         (ranges.size() == 1 ? memory_by_category(costs, style)
                             : memory_by_stage(costs, ranges, style));
}

std::string time_text(const Prediction& costs, const TextStyle& style) {
  const Seconds step = costs.time.total();
  const bool in_seconds = step >= 1_s;
  Table table({{"", Table::Align::left, 0}, {""}, {""}, {"", Table::Align::left, 1}});
  for (const TimePart& part : parts_of(costs.time)) {
    if (part.time == Seconds{}) continue;
    const double share = part.time / step;
    table.add({std::string(part.name),
               in_seconds ? fmt::format("{:.3f} s", part.time.in(kSecond))
                          : fmt::format("{:.2f} ms", part.time.in(1_ms)),
               percent(share), Cell(bar(share, bar_columns(style), style), Paint::accent)});
  }
  const bool stages = costs.stage_times.size() > 1;
  std::string out =
      heading(stages ? "Time of one step, mean of the stages" : "Time of one step", style) +
      table.text(style);
  if (stages) out += time_by_stage(costs, in_seconds, style);
  return out;
}

std::string assumptions_text(const PlanRequest& request, const TextStyle& style) {
  if (request.assumptions.empty()) return {};
  std::string out = heading("Assumed", style);
  for (const std::string& sentence : request.assumptions) {
    out += folded(sentence, std::string("  ") + std::string(glyph("• ", "* ", style)), style);
  }
  return out;
}

std::string predict_text(const PlanRequest& request, const Candidate& candidate,
                         const TextStyle& style) {
  const Prediction costs = prediction_of(candidate);
  std::string out = job_text(request, style) + headline(request, candidate, "plan", style);
  out += remarks_text(request, candidate, style);
  out += memory_text(costs, style);
  if (!candidate.fits) {
    const MemoryPrediction& memory = candidate.prediction.memory;
    out += folded(
        fmt::format("Does not fit{}: stage {} needs {}; {}.", without_savings(request),
                    memory.tightest_stage, with_gib(memory.peak_reserved), limit_text(request)),
        "  ", style);
  }
  return out + time_text(costs, style) + assumptions_text(request, style);
}

}  // namespace echelon
