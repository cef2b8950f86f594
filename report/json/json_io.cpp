#include "report/json/json.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/json/json_io.hpp"
#include "core/plan/plan_fields.hpp"
#include "core/plan/plan_json_io.hpp"
#include "planner/search/bounds.hpp"
#include "report/json/candidate_json_io.hpp"
#include "report/text/text.hpp"

namespace echelon {

namespace {

/// Only what was pinned; an axis that is not there was searched.
Json constraints_json(const PlanConstraints& pinned) {
  Json out = Json::object();
  for (const PlanField* field : kPlanFieldsInJson) {
    if (pinned.has(*field)) out[json_key(*field)] = value_json(*field, pinned.values());
  }
  return out;
}

Json near_miss_json(const PlanRequest& request, const NearestInfeasible& miss) {
  return Json{{"stage", miss.stage},
              {"missing_bytes", whole_bytes(miss.missing)},
              {"fix", fixes_text(miss)},
              {"plan", plan_json(miss.candidate.plan, request.job.global_batch)}};
}

Json rejected_json(const PlanRequest& request, const SearchOutcome& report) {
  Json list = Json::array();
  for (const RejectionCount& rejection : report.rejected) {
    Json nearest{{"detail", rejection.nearest},
                 {"stage", nullptr},
                 {"missing_bytes", nullptr},
                 {"fix", nullptr},
                 {"plan", nullptr}};
    if (rejection.reason == RejectionReason::memory && !report.nearest_infeasible.empty()) {
      nearest.update(near_miss_json(request, report.nearest_infeasible.front()));
    }
    list.push_back({{"reason", name_of(rejection.reason)},
                    {"count", rejection.count},
                    {"nearest", std::move(nearest)}});
  }
  return list;
}

Json timing_json(const Timing& timing) {
  const double seconds = std::max(timing.elapsed.in(kSecond), 1e-9);
  return Json{{"seconds", timing.elapsed.in(kSecond)},
              {"configurations_per_second", static_cast<double>(timing.configurations) / seconds}};
}

/// b − a of every number that both objects hold under the same key.
Json difference(const Json& a, const Json& b) {
  Json out = Json::object();
  for (const auto& [key, value] : a.items()) {
    if (!value.is_number() || !b.contains(key) || !b[key].is_number()) continue;
    if (value.is_number_integer())
      out[key] = b[key].get<std::int64_t>() - value.get<std::int64_t>();
    else
      out[key] = b[key].get<double>() - value.get<double>();
  }
  return out;
}

Json or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

/// Indices of the candidates whose step cannot be distinguished from the winner's, the winner's own
/// first.
Json tied_json(const SearchResult& choice) {
  Json out = Json::array();
  const std::vector<Candidate>& all = choice.report.candidates;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (tied(all.front().prediction.time, all[i].prediction.time,
             choice.request.calibration.time_band)) {
      out.push_back(i);
    }
  }
  return out;
}

/// The front as candidates, each on its own number of GPUs.
Json front_json(const SearchResult& choice, const Provenance& provenance) {
  Json out = Json::array();
  PlanRequest request = choice.request;
  for (const ParetoPoint& plan : choice.front) {
    request.cluster = plan.cluster;
    out.push_back(candidate_json(request, plan.candidate, provenance));
  }
  return out;
}

/// What each listed plan stands for: the plans of its family that are nearly as good.
Json families_json(const SearchResult& choice) {
  Json out = Json::array();
  const Bytes capacity = choice.request.capacity();
  for (const Siblings& siblings : choice.report.siblings) {
    Json ranges = Json::object();
    for (const Siblings::Range& range : siblings.ranges) {
      ranges[json_key(*range.field)] = {{"first", range.first}, {"last", range.last}};
    }
    out.push_back({{"siblings", siblings.plans},
                   {"closed_form_seconds",
                    {{"least", siblings.least.in(kSecond)}, {"most", siblings.most.in(kSecond)}}},
                   {"spare_bytes",
                    {{"least", whole_bytes(capacity - siblings.largest)},
                     {"most", whole_bytes(capacity - siblings.smallest)}}},
                   {"plan", std::move(ranges)}});
  }
  return out;
}

/// One of several searches of an answer.
Json best_plan_json(const SearchResult& choice, const char* key, Json value,
                    const BestPlan& found) {
  Json entry{{key, std::move(value)}, {"fits", found.best.has_value()}, {"why_none", nullptr}};
  if (!found.best) entry["why_none"] = found.why_none;
  if (found.best) {
    entry["plan"] = plan_json(found.best->plan, choice.request.job.global_batch);
    const Seconds step = found.best->prediction.time.step;
    entry["step_seconds"] = step.in(kSecond);
    const std::optional<Seconds> run = economics_of(choice.request, step).time_for_budget;
    entry["days_for_token_budget"] = run ? Json(run->in(kDay)) : Json(nullptr);
    entry["peak_reserved_bytes"] = whole_bytes(found.best->prediction.memory.peak_reserved);
    entry["objective_value"] = found.key.value;
  }
  return entry;
}

/// GPU counts of a search with --max-gpus.
Json counts_json(const SearchResult& choice) {
  Json out = Json::array();
  for (const GpuCountResult& count : choice.counts) {
    out.push_back(best_plan_json(choice, "gpus", count.gpus, count));
  }
  return out;
}

/// Recipes of a search with --precision FORMAT:any.
Json recipes_json(const SearchResult& choice) {
  Json out = Json::array();
  for (const RecipeResult& each : choice.recipes) {
    out.push_back(best_plan_json(choice, "precision", each.recipe, each));
  }
  return out;
}

}  // namespace

Json certificate_json(const SearchOutcome& report) {
  Json open = Json::array();
  for (const OpenSplits& each : report.open_splits) {
    open.push_back({{"kind", name_of(each.kind)}, {"points", each.points}, {"gap", each.gap}});
  }
  const Json assumes{{"closed_form_excess", kClosedFormExcess},
                     {"split_of_layers", "best in closed form"}};
  const bool assumed = report.proved_gap > report.gap;
  return Json{{"proved_optimal", report.proved()},
              {"gap", report.proved_gap},
              {"assumes", assumed ? assumes : Json(nullptr)},
              {"optimal_if_assumed", report.best_as_assumed()},
              {"gap_if_assumed", report.gap},
              {"points", report.counts.points},
              {"pruned_by_memory", report.counts.too_large},
              {"pruned_by_bound", report.counts.bounded},
              {"priced", report.counts.priced},
              {"simulated", report.counts.simulated},
              {"splits_not_searched", std::move(open)}};
}

Json request_json(const PlanRequest& request, const Provenance& provenance) {
  Json out{{"schema", kReportSchema},
           {"version", provenance.version},
           {"model", request.model.name},
           {"parameters", request.model.parameters()},
           {"cluster", provenance.cluster},
           {"gpus", request.cluster.gpus()},
           {"gpu", request.cluster.gpu().name},
           {"seq", request.job.sequence},
           {"global_batch", request.job.global_batch},
           {"precision", request.job.precision.name},
           {"flash_attention", request.job.flash_attention},
           {"layer_code", name_of(request.job.layer_code)},
           {"token_budget", or_null(request.job.token_budget)},
           {"framework", request.framework.name},
           {"calibration", request.calibration.name},
           {"usable_memory_bytes", whole_bytes_within(request.usable_memory())},
           {"capacity_bytes", whole_bytes_within(request.capacity())},
           {"memory_band",
            request.max_memory ? Json(nullptr) : memory_band_json(memory_band_of(request))},
           {"unpriced_savings", request.unpriced_savings},
           {"parameter_offload", request.framework.parameter_offload},
           {"top", request.top},
           {"prefer", name_of(request.preference)},
           {"front", request.whole_front},
           {"exhaustive", request.exhaustive},
           {"objective", name_of(request.objective)},
           {"max_gpus", request.max_gpus ? Json(*request.max_gpus) : Json(nullptr)},
           {"critical_batch", or_null(request.economics.critical_batch)},
           {"constraints", constraints_json(request.constraints)},
           {"assumptions", request.assumptions}};
  if (request.job.expert_imbalance > 1) out["expert_imbalance"] = request.job.expert_imbalance;
  if (request.job.documents) out["document_lengths"] = documents_json(request.job);
  if (request.job.adapters) out["lora"] = adapters_json(request);
  return out;
}

std::string search_json(const SearchResult& choice, const Provenance& provenance,
                        const Timing& timing) {
  const PlanRequest& request = choice.request;
  const SearchOutcome& report = choice.report;
  Json candidates = Json::array();
  for (const Candidate& candidate : report.candidates) {
    candidates.push_back(candidate_json(request, candidate, provenance));
  }
  Json nearest_infeasible = Json::array();
  for (const NearestInfeasible& miss : report.nearest_infeasible) {
    nearest_infeasible.push_back(near_miss_json(request, miss));
  }
  const Candidate* winner = report.winner();
  const auto or_none = [&](const Candidate* plan) {
    return plan != nullptr ? candidate_json(request, *plan, provenance) : Json(nullptr);
  };
  Json document{{"schema", kReportSchema}, {"request", request_json(request, provenance)}};
  document["winner"] = or_none(winner);
  document["fastest"] = or_none(report.fastest ? &*report.fastest : nullptr);
  document["fastest_likely"] = or_none(report.fastest_likely ? &*report.fastest_likely : nullptr);
  document["candidates"] = std::move(candidates);
  document["families"] = families_json(choice);
  document["tied"] = tied_json(choice);
  document["pareto"] = front_json(choice, provenance);
  document["pareto_complete"] = report.whole_front;
  if (request.max_gpus) document["gpu_counts"] = counts_json(choice);
  if (!choice.recipes.empty()) document["recipes"] = recipes_json(choice);
  document["rejected"] = rejected_json(request, report);
  document["near_misses"] = std::move(nearest_infeasible);
  document["certificate"] = certificate_json(report);
  document["timing"] = timing_json(timing);
  return dumped(document);
}

std::string predict_json(const PlanRequest& request, const Candidate& candidate,
                         const Provenance& provenance) {
  Json document = candidate_json(request, candidate, provenance);
  document["assumptions"] = request.assumptions;
  return dumped(document);
}

std::string compare_json(const PlanWithPrediction& a, const PlanWithPrediction& b) {
  const Json left = candidate_json(a.plan, {}, a.score, a.simulated);
  const Json right = candidate_json(b.plan, {}, b.score, b.simulated);
  Json memory = difference(left["memory"], right["memory"]);
  Json differing = Json::array();  // fields of the plan, as CSV files name them
  for (const PlanField* field : differing_fields(a.plan.plan, b.plan.plan)) {
    differing.push_back(field->key);
  }
  return dumped({{"schema", kReportSchema},
                 {"a", {{"name", a.name}, {"note", a.note}, {"candidate", left}}},
                 {"b", {{"name", b.name}, {"note", b.note}, {"candidate", right}}},
                 {"delta",
                  {{"plan", difference(left["plan"], right["plan"])},
                   {"differing", std::move(differing)},
                   {"memory", std::move(memory)},
                   {"time", difference(left["time"], right["time"])},
                   {"throughput", difference(left["throughput"], right["throughput"])}}}});
}

}  // namespace echelon
