#include "core/json/json_io.hpp"
#include "core/plan/plan_json_io.hpp"
#include "report/interop.hpp"

namespace echelon {

namespace {

Json findings_json(const ImportedConfig& imported, Origin origin) {
  Json out = Json::array();
  for (const ConfigFinding& finding : imported.findings) {
    if (finding.origin != origin) continue;
    out.push_back(
        {{"field", label_of(finding.field)}, {"value", finding.value}, {"from", finding.from}});
  }
  return out;
}

}  // namespace

std::string import_json(const ImportedConfig& imported, const PlanRequest* request,
                        const Candidate* candidate) {
  Json root;
  root["kind"] = "config";
  root["format"] = imported.format->name;
  root["framework"] = imported.config.framework;
  root["version"] = imported.format->version;
  root["plan"] =
      candidate != nullptr ? plan_json(candidate->plan, imported.config.global_batch) : Json();
  root["step_seconds"] = Json();
  if (candidate != nullptr) {
    root["step_seconds"] = finite(candidate->prediction.time.step.in(kSecond), "a step");
  }
  root["request"] = Json();
  if (request != nullptr) {
    root["request"] = {{"model", request->model.name},
                       {"gpus", request->cluster.gpus()},
                       {"seq", request->job.sequence},
                       {"global_batch", request->job.global_batch},
                       {"precision", request->job.precision.name}};
  }
  root["found"] = findings_json(imported, Origin::found);
  root["derived"] = findings_json(imported, Origin::derived);
  root["assumed"] = findings_json(imported, Origin::assumed);
  root["not_priced"] = imported.unpriced;
  root["unpriced_savings"] = imported.unpriced_savings;
  root["not_read"] = imported.unread;
  root["ask"] = imported.asks;
  root["refused"] = Json();
  return root.dump(2) + "\n";
}

}  // namespace echelon
