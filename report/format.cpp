#include "report/format.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

namespace echelon {

namespace {

/// Decimals that leave about three significant digits.
std::string three_digits(double value) {
  const double size = std::abs(value);
  return fmt::format("{:.{}f}", value, size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
}

}  // namespace

std::string grouped(std::int64_t value) {
  std::string digits = std::to_string(value);
  const std::size_t first = value < 0 ? 1 : 0;
  for (std::size_t at = digits.size(); at > first + 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
  return digits;
}

std::string flops_formula(const ModelSpec& model, const TrainingJob& job) {
  const std::string weights = job.adapters ? "4N + 6A" : "6N";
  if (model.sparse()) {
    const double keys = std::min<double>(model.dsa.topk, job.document_span());
    return fmt::format("{} + 12LhK FLOPs per token, K = {}, and the indexer's", weights,
                       grouped(static_cast<std::int64_t>(std::round(keys))));
  }
  if (!job.documents) return weights + " + 12LhT FLOPs per token";
  return fmt::format("{} + 12LhD FLOPs per token, D = {}", weights,
                     grouped(static_cast<std::int64_t>(std::round(job.document_span()))));
}

double causal_share(const ModelSpec& model, const TrainingJob& job) {
  const bool frozen = job.adapters.has_value();
  const double span = job.document_span();
  return model.flops_per_token(span, frozen, true) / model.flops_per_token(span, frozen);
}

std::string percent(double ratio) { return fmt::format("{:.1f} %", 100 * ratio); }
std::string probability(double value) {
  constexpr double kEdge = 1e-3;
  if (value > 1 - kEdge) return "> 99.9 %";
  if (value < kEdge) return "< 0.1 %";
  const bool near_edge = value > 0.99 || value < 0.01;
  return fmt::format("{:.{}f} %", 100 * value, near_edge ? 1 : 0);
}
std::string likely_to_fit(double value) {
  std::string out = probability(value) + " likely to fit";
  if (out.starts_with('>')) out.replace(0, 1, "over");
  if (out.starts_with('<')) out.replace(0, 1, "under");
  return out;
}

std::string signed_percent(double ratio) {
  const double value = std::round(1000 * ratio) / 10;
  return value == 0 ? "0.0 %" : fmt::format("{:+.1f} %", value);
}
std::string words_of(const MemoryBand& band) {
  return fmt::format("{}, {}, bias {}, spread {}", name_of(band.kind), band.distribution(),
                     signed_percent(std::exp(band.bias) - 1), percent(band.spread));
}

std::string gib(Bytes bytes) { return fmt::format("{:.2f}", bytes.in(1_GiB)); }
MemoryUnit memory_unit(Bytes largest) {
  const Bytes size = std::max(largest, Bytes{} - largest);
  constexpr double kSmall = 0.1;
  if (size == Bytes{} || size >= kSmall * 1_GiB) return {1_GiB, "GiB"};
  return {1_MiB, "MiB"};
}
std::string MemoryUnit::of(Bytes bytes) const { return fmt::format("{:.2f}", bytes / size); }
std::string with_gib(Bytes bytes) {
  const MemoryUnit unit = memory_unit(bytes);
  const double value = bytes / unit.size;
  if (std::floor(value) == value) return fmt::format("{:.0f} {}", value, unit.name);
  return fmt::format("{} {}", three_digits(value), unit.name);
}

std::string duration(Seconds time) {
  struct Scale {
    double seconds;
    const char* unit;
  };
  static constexpr std::array<Scale, 7> kScales = {{{86400.0 * 365.25, "years"},
                                                    {86400, "days"},
                                                    {3600, "h"},
                                                    {1, "s"},
                                                    {1e-3, "ms"},
                                                    {1e-6, "us"},
                                                    {1e-9, "ns"}}};
  const double seconds = time.in(kSecond);
  if (seconds == 0) return "0 s";
  for (const Scale& scale : kScales) {
    // Hours only from two hours on: 600 s reads better than 0.17 h.
    const double least = scale.seconds > 1 ? 2 * scale.seconds : 0.9995 * scale.seconds;
    if (std::abs(seconds) >= least) {
      return three_digits(seconds / scale.seconds) + " " + scale.unit;
    }
  }
  return fmt::format("{:.2g} s", seconds);
}

std::string signed_duration(Seconds time) {
  constexpr double kRounding = 1e-9;  // of sums of parts; clocks of GPUs tick no finer
  if (std::abs(time.in(kSecond)) < kRounding) return "0 s";
  return (time.in(kSecond) < 0 ? "-" : "+") + duration(Seconds{std::abs(time.in(kSecond))});
}

std::string counted(std::int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", grouped(count), noun, count == 1 ? "" : "s");
}

std::vector<TimePart> parts_of(const CostBreakdown& time) {
  std::vector<TimePart> parts;
  for (const StepPart& part : kStepParts) parts.push_back({part.label, part.of(time)});
  return parts;
}

std::optional<PartIncrease> largest_increase(const CostBreakdown& from, const CostBreakdown& to) {
  std::optional<PartIncrease> largest;
  for (const StepPart& each : kStepParts) {
    if (each.member == &CostBreakdown::stragglers) continue;
    const PartIncrease part{each.label, each.of(from), each.of(to)};
    if (part.more() > (largest ? largest->more() : Seconds{})) largest = part;
  }
  return largest;
}

std::vector<MemoryPart> parts_of(const MemoryBreakdown& memory) {
  return {{"weights", memory.weights},     {"gradients", memory.gradients},
          {"optimizer", memory.optimizer}, {"activations", memory.activations},
          {"workspace", memory.workspace}, {"communication", memory.communication},
          {"CUDA context", memory.context}};
}

namespace {

/// "4/16", or "0-4/16" when the stages differ.
std::string of_layers(const std::vector<int>& some, const std::vector<int>& layers) {
  const auto [low, high] = std::minmax_element(some.begin(), some.end());
  const int most = *std::max_element(layers.begin(), layers.end());
  if (*low == *high) return fmt::format("{}/{}", *low, most);
  return fmt::format("{}-{}/{}", *low, *high, most);
}

/// "15, 30 x 16, 15": many equal neighbours are grouped.
std::string in_runs(const std::vector<int>& values) {
  if (values.empty()) return "none";
  std::vector<std::string> runs;
  for (std::size_t first = 0; first < values.size();) {
    std::size_t end = first;
    while (end < values.size() && values[end] == values[first]) ++end;
    const std::size_t count = end - first;
    if (count > 2) {
      runs.push_back(fmt::format("{} x {}", count, values[first]));
    } else {
      for (std::size_t i = 0; i < count; ++i) runs.push_back(std::to_string(values[first]));
    }
    first = end;
  }
  return fmt::format("{}", fmt::join(runs, ", "));
}

std::string bucket_words(const ParallelPlan& plan) {
  return plan.bucket ? with_gib(*plan.bucket) : "the framework's";
}

}  // namespace

std::string recompute_text(const ParallelPlan& plan) {
  const bool mixed = plan.recompute == Recompute::mixed;
  if (!mixed && plan.recompute != Recompute::full) {
    const std::string modules = text_of(plan.recompute_modules);
    return std::string(name_of(plan.recompute)) + (modules.empty() ? "" : ":" + modules);
  }
  if (plan.recompute_layers.empty() || plan.recompute_layers == plan.layers_per_stage)
    return "full";
  if (plan.layers_per_stage.empty()) return std::string(name_of(plan.recompute));
  const std::string full = "full " + of_layers(plan.recompute_layers, plan.layers_per_stage);
  if (!mixed || plan.selective_layers.empty()) return full;
  return full + " + selective " + of_layers(plan.selective_layers, plan.layers_per_stage);
}

// A phrase with an order and words of its own, which leaves out what is usual: axes are walked, so
// that none is missing.
std::string described(const ParallelPlan& plan, const TextStyle& style) {
  std::vector<std::string> words = {fmt::format("tp {}", plan.tp), fmt::format("pp {}", plan.pp)};
  if (plan.vpp > 1) words.push_back(fmt::format("vpp {}", plan.vpp));
  if (plan.vpp > 1 && plan.group_size() > plan.pp) {
    words.push_back(fmt::format("microbatches in groups of {}", plan.group_size()));
  }
  if (plan.cp > 1) words.push_back(fmt::format("cp {} ({})", plan.cp, name_of(plan.cp_comm)));
  for (const PlanField& field : plan_fields()) {  // the other axes that are used
    const bool said = field.always_shown || field.is(&ParallelPlan::cp);
    if (field.kind != PlanFieldKind::degree || said) continue;
    const int degree = plan.*std::get<int ParallelPlan::*>(field.member);
    if (degree == 1) continue;
    const bool named = field.is(&ParallelPlan::ep) && plan.dispatcher != Dispatcher::alltoall;
    words.push_back(named ? fmt::format("{} {} ({})", field.label, degree, name_of(plan.dispatcher))
                          : fmt::format("{} {}", field.label, degree));
  }
  words.push_back(fmt::format("dp {}", plan.dp));
  words.push_back(fmt::format("microbatch {}", plan.microbatch));
  std::string zero = fmt::format("ZeRO {}", plan.zero);
  if (plan.zero > 0 && plan.shard_group != plan.dp * plan.cp) {
    zero += fmt::format(" over {} ranks", plan.shard_group);
  }
  words.push_back(std::move(zero));
  if (plan.sequence_parallel) words.emplace_back("sequence parallel");
  words.push_back(plan.recompute == Recompute::none ? "no recompute"
                                                    : "recompute " + recompute_text(plan));
  if (plan.offload_optimizer > 0) {
    words.push_back(
        fmt::format("{:.0f} % of the optimizer offloaded", 100 * plan.offload_optimizer));
  }
  if (!plan.offload_modules.empty()) {
    words.push_back("activations offloaded: " + text_of(plan.offload_modules));
  }
  if (plan.bucket) words.push_back("gradient buckets of " + bucket_words(plan));
  if (plan.pp > 1) words.emplace_back(name_of(plan.schedule));
  if (plan.rank_order != RankOrder::dp_inside_pp) {
    words.push_back("order " + std::string(name_of(plan.rank_order)));
  }
  if (plan.cuda_graphs != CudaGraphs::none) {
    words.push_back("CUDA graphs of " + std::string(name_of(plan.cuda_graphs)));
  }
  // Overlap is left out: it is the framework's more often than the user's. That of experts is not.
  if (plan.overlap_ep) words.emplace_back("overlap of ep");
  if (plan.overlap_shared) words.emplace_back("overlap of shared experts");
  const auto [fewest, most] =
      std::minmax_element(plan.layers_per_stage.begin(), plan.layers_per_stage.end());
  if (fewest != most && *most - *fewest > 1) {
    words.push_back(fmt::format("layers {}", fmt::join(plan.layers_per_stage, ",")));
  }
  return fmt::format("{}", fmt::join(words, glyph(" · ", ", ", style)));
}

std::string field_text(const PlanField& field, const ParallelPlan& plan) {
  if (const auto* layers = std::get_if<std::vector<int> ParallelPlan::*>(&field.member)) {
    return in_runs(plan.**layers);
  }
  if (const auto* choice = std::get_if<bool ParallelPlan::*>(&field.member)) {
    return plan.**choice ? "yes" : "no";
  }
  if (field.is(&ParallelPlan::recompute)) return recompute_text(plan);
  if (field.is(&ParallelPlan::offload_optimizer)) {
    return fmt::format("{:.3g} %", 100 * plan.offload_optimizer);
  }
  if (field.is(&ParallelPlan::bucket)) return bucket_words(plan);
  return value_text(field, plan);
}

std::string differences(const ParallelPlan& plan, const ParallelPlan& other) {
  std::vector<std::string> words;
  const bool other_recompute = recompute_text(plan) != recompute_text(other);
  bool recompute_told = false;
  for (const PlanField* field : chosen_differences(plan, other)) {
    const bool counts = field->is(&ParallelPlan::recompute_layers) ||
                        field->is(&ParallelPlan::selective_layers) ||
                        field->is(&ParallelPlan::recompute_modules);
    if (field->is(&ParallelPlan::recompute) || (counts && other_recompute)) {
      if (!recompute_told) words.push_back("recompute " + recompute_text(other));
      recompute_told = true;
    } else if (const auto* choice = std::get_if<bool ParallelPlan::*>(&field->member)) {
      words.push_back((other.**choice ? "" : "no ") + std::string(field->label));
    } else {
      words.push_back(fmt::format("{} {}", field->label, field_text(*field, other)));
    }
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

}  // namespace echelon
