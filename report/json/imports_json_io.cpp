#include <string>
#include <vector>

#include "core/json/json_io.hpp"
#include "core/plan/plan_json_io.hpp"
#include "report/imports.hpp"

namespace echelon {

namespace {

Json facts_json(const ImportedLog& log, FactOrigin origin) {
  Json facts = Json::array();
  for (const RunFact& fact : log.facts.all()) {
    if (fact.origin != origin) continue;
    const auto number = log.facts.number(fact.column);
    Json value = fact.value;
    if (number) value = *number;
    facts.push_back({{"field", fact.column}, {"value", value}, {"from", fact.from}});
  }
  return facts;
}

Json measured_json(const ImportedLog& log) {
  if (!log.steps.step) return nullptr;
  Json measured = {{"step_seconds", log.steps.step->in(kSecond)},
                   {"steps_used", log.steps.windows},
                   {"steps_printed", log.steps.printed},
                   {"spread", log.steps.spread},
                   {"time_stamp_seconds", nullptr},
                   {"peak_memory_bytes", nullptr},
                   {"memory_kind", nullptr},
                   {"lines", {log.steps.first_line, log.steps.last_line}}};
  if (log.steps.wall) measured["time_stamp_seconds"] = log.steps.wall->in(kSecond);
  if (log.peak_memory_bytes) {
    measured["peak_memory_bytes"] = *log.peak_memory_bytes;
    measured["memory_kind"] = log.memory_kind;
  }
  return measured;
}

Json log_request_json(const LogImport& import) {
  if (!import.run) return nullptr;
  const MappedRun& run = *import.run;
  return {{"model", run.model.name},
          {"cluster", run.cluster.name()},
          {"framework", std::string(run.framework.name)},
          {"gpus", run.plan.gpus()},
          {"seq", run.job.sequence},
          {"global_batch", run.job.global_batch},
          {"precision", run.job.precision.name}};
}

Json one_import(const LogImport& import) {
  const ImportedLog& log = import.log;
  Json document = {{"kind", "log"},
                   {"file", log.path},
                   {"framework", std::string(log.format->name)},
                   {"version", log.version.empty() ? Json(nullptr) : Json(log.version)},
                   {"plan", nullptr},
                   {"request", log_request_json(import)},
                   {"measured", measured_json(log)},
                   {"given", facts_json(log, FactOrigin::given)},
                   {"found", facts_json(log, FactOrigin::found)},
                   {"derived", facts_json(log, FactOrigin::derived)},
                   {"assumed", Json::array()},
                   {"checked", log.remarks},
                   {"dropped", log.steps.dropped},
                   {"ask", Json::array()},
                   {"refused", nullptr},
                   {"not_priced", nullptr}};
  if (import.run) {
    document["plan"] = plan_json(import.run->plan, import.run->job.global_batch);
    document["assumed"] = import.run->inferred;
  }
  for (std::size_t i = 0; i < log.ask.size(); ++i) {
    if (i == 0 || log.ask[i].flag != log.ask[i - 1].flag) {
      document["ask"].push_back(log.ask[i].flag);
    }
  }
  if (!log.refused.empty()) document["refused"] = log.refused;
  if (!import.not_priced.empty()) document["not_priced"] = import.not_priced;
  return document;
}

}  // namespace

std::string log_imports_json(std::span<const LogImport> imports) {
  Json document;
  if (imports.size() == 1) {
    document = one_import(imports.front());
  } else {
    document["logs"] = Json::array();
    for (const LogImport& import : imports) document["logs"].push_back(one_import(import));
  }
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace echelon
