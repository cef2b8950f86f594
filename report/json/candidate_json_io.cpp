#include "report/json/candidate_json_io.hpp"

#include <utility>

#include "core/plan/plan_json_io.hpp"

namespace echelon {

namespace {

template <class Unit>
Json or_null(const std::optional<Quantity<Unit>>& value, Quantity<Unit> unit) {
  return value ? Json(finite(value->in(unit), "an economic figure")) : Json(nullptr);
}

Json economics_json(const Economics& money) {
  Json out{{"gpu_seconds_per_step", finite(money.gpu_time.in(kSecond), "GPU time")},
           {"usd_per_step", or_null(money.per_step, kDollar)},
           {"usd_for_token_budget", or_null(money.for_budget, kDollar)},
           {"days_for_token_budget", or_null(money.time_for_budget, kDay)},
           {"expected_usd_for_token_budget", or_null(money.expected_dollars, kDollar)},
           {"expected_days_for_token_budget", or_null(money.expected_time, kDay)},
           {"kwh_per_step", nullptr},
           {"most_kwh_per_step", nullptr},
           {"kwh_for_token_budget", nullptr},
           {"token_factor", finite(money.token_factor, "the token factor")},
           {"goodput", nullptr},
           {"goodput_kind", nullptr},
           {"checkpoint_interval_seconds", nullptr},
           {"checkpoint_interval_steps", nullptr},
           {"checkpoint_bytes", nullptr},
           {"checkpoint_seconds", nullptr},
           {"checkpoint_stall_seconds", nullptr},
           {"restart_seconds", nullptr},
           {"mtbf_seconds", nullptr}};
  if (const std::optional<Energy>& energy = money.energy) {
    out["kwh_per_step"] = finite(energy->per_step.in(kKilowattHour), "energy");
    out["most_kwh_per_step"] = finite(energy->most_per_step.in(kKilowattHour), "energy");
    out["kwh_for_token_budget"] = or_null(energy->for_budget, kKilowattHour);
  }
  if (const std::optional<Goodput>& failures = money.goodput) {
    out["goodput"] = finite(failures->fraction, "goodput");
    out["goodput_kind"] = name_of(failures->evidence());
    out["checkpoint_interval_steps"] = steps_between_checkpoints(failures->interval, money.step);
    out["checkpoint_stall_seconds"] = finite(failures->stall.in(kSecond), "stall");
    out["checkpoint_interval_seconds"] = finite(failures->interval.in(kSecond), "interval");
    out["checkpoint_bytes"] = whole_bytes(failures->checkpoint);
    out["checkpoint_seconds"] = finite(failures->write.in(kSecond), "checkpoint time");
    out["restart_seconds"] = finite(failures->restart.in(kSecond), "restart time");
    out["mtbf_seconds"] = finite(failures->mtbf.in(kSecond), "time between failures");
  }
  return out;
}

}  // namespace

std::string dumped(const Json& document) {
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json memory_band_json(const MemoryBand& band) {
  return Json{{"kind", name_of(band.kind)},
              {"distribution", band.distribution()},
              {"bias", band.bias},
              {"spread", band.spread},
              {"source", band.source}};
}

Json candidate_json(const PlanFile& file, const Economics& money, const Score& score,
                    bool simulated) {
  const Seconds expected = score.weight * file.predicted.time.total();
  Json unusual = Json::array();
  for (const FeaturePrice& each : kFeaturePrices) {
    if (score.unusual.has(each.feature)) unusual.push_back(each.name);
  }
  return Json{
      {"schema", kReportSchema},
      {"kind", name_of(file.predicted.evidence)},
      {"framework", file.framework},
      {"calibration", file.calibration},
      {"model", file.model.name},
      {"cluster", file.cluster},
      {"gpus", file.gpus},
      {"seq", file.job.sequence},
      {"global_batch", file.job.global_batch},
      {"precision", file.job.precision.name},
      {"plan", plan_json(file.plan, file.job.global_batch)},
      {"fits", file.predicted.fits},
      {"fits_probability", probability_json(file.predicted)},
      {"expected_seconds", finite(expected.in(kSecond), "the expected step")},
      {"simulated", simulated},
      {"unusual", std::move(unusual)},
      {"memory", memory_json(file.predicted)},
      {"time", time_json(file.predicted)},
      {"throughput", throughput_json(file.predicted, file.gpus, file.job, file.model.sparse())},
      {"economics", economics_json(money)}};
}

Json documents_json(const TrainingJob& job) {
  const double span = job.document_span();
  return Json{{"lengths", job.documents->text},
              {"mean_span", span},
              {"attention_left", span / job.sequence}};
}

Json adapters_json(const PlanRequest& request) {
  const Adapters& adapters = *request.job.adapters;
  Json out{{"rank", adapters.rank},
           {"targets", modules_json(adapters.targets)},
           {"trained_parameters",
            adapter_parameters(request.model, adapters, request.framework.adapts_each_module)}};
  if (request.job.quantized_weights) {
    out["quantized_weights"] = request.job.quantized_weights->text();
  }
  return out;
}

Json candidate_json(const PlanRequest& request, const Candidate& candidate,
                    const Provenance& provenance) {
  Json out = candidate_json(plan_file_of(request, candidate, provenance),
                            economics_of(request, candidate.prediction.time), candidate.score,
                            candidate.simulated);
  if (request.job.documents) out["document_lengths"] = documents_json(request.job);
  if (request.job.adapters) out["lora"] = adapters_json(request);
  out["time"]["data_load_seconds"] =
      finite(candidate.prediction.time.data_load.in(kSecond), "the time to load data");
  out["throughput"]["mfu_causal"] =
      finite(candidate.prediction.mfu * causal_share(request.model, request.job), "MFU");
  out["throughput"]["mfu_peak_format"] =
      request.cluster.gpu().peak_format(request.job.precision.compute);
  Json list = Json::array();
  for (const FrameworkRemark& remark : remarks_of(request, candidate.plan)) {
    list.push_back(
        {{"kind", name_of(remark.kind)}, {"text", remark.text}, {"source", remark.source}});
  }
  out["remarks"] = std::move(list);
  return out;
}

}  // namespace echelon
