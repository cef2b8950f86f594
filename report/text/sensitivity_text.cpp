// The gain of each change, as a table and as a sentence.
#include <fmt/format.h>

#include "planner/economics.hpp"
#include "report/explain.hpp"
#include "report/format.hpp"
#include "report/text/table.hpp"

namespace echelon {

namespace {

/// "the same", or the values that change.
std::string changes_of(const Sensitivity& s, const ParallelPlan& before) {
  const std::string changes = differences(before, s.winner->plan);
  return changes.empty() ? "nothing" : changes;
}

std::string_view words_of(ChangedThing thing) {
  switch (thing) {
    case ChangedThing::machine: return "machine";
    case ChangedThing::batch: return "batch";
    case ChangedThing::model: return "model and its number formats";
  }
  return "?";
}

}  // namespace

std::string described(const Sensitivity& s) {
  switch (s.change) {
    case Change::less_memory: return "5 % less GPU memory";
    case Change::more_memory: return "25 % more GPU memory";
    case Change::less_network: return "20 % less network per node";
    case Change::double_network: return "twice the network per node";
    case Change::double_hbm: return "twice the HBM bandwidth";
    case Change::more_compute: return "20 % more compute";
    case Change::one_more_node:
    case Change::double_gpus:
    case Change::fewer_gpus: return counted(s.gpus, "GPU");
    case Change::rounded_batch: return "a global batch of " + grouped(s.global_batch);
    case Change::double_batch: return "twice the global batch";
    case Change::half_batch: return "half the global batch";
    case Change::half_sequence: return "half the sequence, same tokens";
    case Change::fp8: return "GEMMs in fp8";
    case Change::grouped_query: return "8 key/value heads (GQA)";
  }
  return {};
}

std::string buys_most_sentence(const Sensitivity& best, const PlanRequest& request) {
  std::string out =
      fmt::format("{} would save {} of the GPU time per token (a step of {})", described(best),
                  percent(1 - best.gpu_time), duration(best.winner->prediction.time.step));
  if (best.change == Change::double_batch && !request.economics.critical_batch) {
    out += ", if as many tokens are enough (--critical-batch)";
  }
  if (best.change == Change::fp8) out += ", if training stays stable in fp8";
  return out;
}

std::string even_batches_sentence(const std::vector<Sensitivity>& all, const PlanRequest& request) {
  const ClusterTopology& cluster = request.cluster;
  const bool whole = cluster.gpus() % cluster.node().gpus == 0;
  std::string out =
      fmt::format("{} sequences are not a multiple of the {}", grouped(request.job.global_batch),
                  whole ? counted(cluster.nodes(), "node") : counted(cluster.gpus(), "GPU"));
  for (const Sensitivity& s : all) {
    out += (&s == all.data() ? ": " : "; ") + buys_most_sentence(s, request);
  }
  return out;
}

std::string sensitivities_text(const PlanRequest& request, const Candidate& winner,
                               const std::vector<Sensitivity>& all, const TextStyle& style) {
  if (all.empty()) return {};
  Table table({{"change", Table::Align::left, 0},
               {"step"},
               {"time per token"},
               {"GPU time per token", Table::Align::right, 1},
               {"what the best plan changes", Table::Align::left, 2}});
  for (const Sensitivity& s : all) {
    if (!s.winner) {
      table.add({described(s), "", Cell("nothing fits", Paint::bad), "", ""});
      continue;
    }
    const auto cell = [](double ratio) {
      const Paint paint = ratio < 0.995 ? Paint::good : ratio > 1.005 ? Paint::bad : Paint::plain;
      return Cell(signed_percent(ratio - 1), paint);
    };
    table.add({described(s), duration(s.winner->prediction.time.step), cell(s.time),
               cell(s.gpu_time), Cell(changes_of(s, winner.plan), Paint::dim)});
  }
  std::string out = heading("One change at a time, searched again", style) + table.text(style);
  const Sensitivity* best = most_valuable(all);
  if (best == nullptr) {
    return out + folded("None of these saves 1 % of the GPU time per token.", "  ", style);
  }
  out += folded("Buys most: " + buys_most_sentence(*best, request) + ".", "  ", style);
  for (const ChangedThing thing :
       {ChangedThing::machine, ChangedThing::batch, ChangedThing::model}) {
    const Sensitivity* other = most_valuable(all, thing);
    if (other == nullptr || other == best) continue;
    out +=
        folded(fmt::format("Of the {}: {}.", words_of(thing), buys_most_sentence(*other, request)),
               "  ", style);
  }
  return out;
}

}  // namespace echelon
