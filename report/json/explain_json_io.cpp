#include <utility>

#include "core/json/json_io.hpp"
#include "core/plan/plan_json_io.hpp"
#include "report/explain.hpp"
#include "report/json/candidate_json_io.hpp"

namespace echelon {

namespace {

Json step_json(const PlanRequest& request, const ChainStep& step) {
  Json out{{"technique", name_of(step.technique)},
           {"also", step.also ? Json(name_of(*step.also)) : Json(nullptr)},
           {"zero", step.zero},
           {"gpus", step.gpus},
           {"plan", nullptr},
           {"fits", step.plan && step.plan->fits},
           {"illegal", nullptr},
           {"stage", step.stage},
           {"missing_bytes", whole_bytes(step.missing)},
           {"bottleneck", name_of(step.limit.bottleneck)},
           {"bottleneck_share", finite(step.limit.share, "a share")},
           {"pressing", nullptr},
           {"pressing_bytes", nullptr},
           {"step_seconds", nullptr},
           {"peak_reserved_bytes", nullptr}};
  if (!step.plan) {
    out["illegal"] = step.illegal;
    return out;
  }
  out["plan"] = plan_json(step.plan->plan, request.job.global_batch);
  out["pressing"] = name_of(step.pressing->category);
  out["pressing_bytes"] = whole_bytes(step.pressing->bytes);
  out["step_seconds"] = finite(step.plan->prediction.time.step.in(kSecond), "a step");
  out["peak_reserved_bytes"] = whole_bytes(step.plan->prediction.memory.peak_reserved);
  return out;
}

Json layout_json(const AxisLayout& axis) {
  return Json{{"axis", name_of(axis.axis)},
              {"ranks", axis.ranks},
              {"domains", axis.domains},
              {"sent_bytes", whole_bytes(axis.sent)},
              {"seconds", finite(axis.placed.in(kSecond), "a collective")},
              {"other_domains", axis.other_domains},
              {"other_seconds", finite(axis.elsewhere.in(kSecond), "a collective")}};
}

Json sensitivity_json(const PlanRequest& request, const Sensitivity& s) {
  Json out{{"change", name_of(s.change)},
           {"gpus", s.gpus},
           {"global_batch", s.global_batch},
           {"fits", s.winner.has_value()},
           {"other_plan", s.other_plan},
           {"step_seconds", nullptr},
           {"time_per_token_ratio", nullptr},
           {"gpu_time_per_token_ratio", nullptr},
           {"plan", nullptr}};
  if (!s.winner) return out;
  // Microbatches follow from the batch, which some changes change.
  std::int64_t batch = request.job.global_batch;
  if (s.change == Change::double_batch || s.change == Change::half_sequence) batch *= 2;
  if (s.change == Change::half_batch) batch /= 2;
  out["step_seconds"] = finite(s.winner->prediction.time.step.in(kSecond), "a step");
  out["time_per_token_ratio"] = finite(s.time, "a ratio");
  out["gpu_time_per_token_ratio"] = finite(s.gpu_time, "a ratio");
  out["plan"] = plan_json(s.winner->plan, batch);
  return out;
}

std::string_view name_of(WhyNot::Verdict verdict) {
  switch (verdict) {
    case WhyNot::Verdict::illegal: return "illegal";
    case WhyNot::Verdict::too_large: return "too-large";
    case WhyNot::Verdict::slower: return "slower";
    case WhyNot::Verdict::winner: return "winner";
    case WhyNot::Verdict::better: return "better";
    case WhyNot::Verdict::unknown: return "unknown";
  }
  return "?";
}

Json why_not_json(const PlanRequest& request, const WhyNotAnswer& asked,
                  const Provenance& provenance) {
  const WhyNot& answer = asked.answer;
  const auto candidate = [&](const std::optional<Candidate>& plan) {
    return plan ? candidate_json(request, *plan, provenance) : Json(nullptr);
  };
  Json out{{"asked", asked.asked}, {"verdict", name_of(answer.verdict)},
           {"rule", nullptr},      {"detail", nullptr},
           {"stage", nullptr},     {"missing_bytes", nullptr},
           {"tied", answer.tied},  {"finished", answer.whole}};
  if (answer.rule) {
    out["rule"] = name_of(answer.rule->reason);
    out["detail"] = answer.rule->detail;
  }
  if (answer.verdict == WhyNot::Verdict::too_large) {
    out["stage"] = answer.stage;
    out["missing_bytes"] = whole_bytes(answer.missing);
  }
  out["best_with_it"] = candidate(answer.asked);
  out["neighbor"] = candidate(answer.neighbor);
  out["neighbor_changes"] = answer.neighbor ? Json(answer.changes) : Json(nullptr);
  return out;
}

}  // namespace

std::string explain_json(const Explanation& explanation, const std::optional<WhyNotAnswer>& asked,
                         const Provenance& provenance) {
  const PlanRequest& request = explanation.choice.request;
  const Candidate* winner = explanation.choice.report.winner();
  Json chain = Json::array();
  for (const ChainStep& step : explanation.chain) chain.push_back(step_json(request, step));
  Json layout = Json::array();
  for (const AxisLayout& axis : explanation.layout) layout.push_back(layout_json(axis));
  Json changes = Json::array();
  for (const Sensitivity& s : explanation.sensitivities) {
    changes.push_back(sensitivity_json(request, s));
  }
  const Sensitivity* best = most_valuable(explanation.sensitivities);
  return dumped(
      {{"schema", kReportSchema},
       {"request", request_json(request, provenance)},
       {"winner", winner != nullptr ? candidate_json(request, *winner, provenance) : Json(nullptr)},
       {"certificate", certificate_json(explanation.choice.report)},
       {"chain", std::move(chain)},
       {"layout", std::move(layout)},
       {"sensitivities", std::move(changes)},
       {"unfinished", explanation.unfinished},
       {"most_valuable", best != nullptr ? Json(name_of(best->change)) : Json(nullptr)},
       {"why_not", asked ? why_not_json(request, *asked, provenance) : Json(nullptr)}});
}

}  // namespace echelon
