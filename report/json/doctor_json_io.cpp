#include <utility>

#include "core/json/json_io.hpp"
#include "report/doctor.hpp"

namespace echelon {

std::string doctor_json(const std::vector<Finding>& findings) {
  const auto state = [](const Finding& finding) {
    switch (finding.state) {
      case Finding::State::fine: return "fine";
      case Finding::State::note: return "note";
      case Finding::State::missing: return "missing";
    }
    return "?";
  };
  Json list = Json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"topic", finding.topic},
                    {"name", finding.name},
                    {"state", state(finding)},
                    {"detail", finding.detail},
                    {"remedy", finding.remedy.empty() ? Json(nullptr) : Json(finding.remedy)},
                    {"needed", finding.needed}});
  }
  const Json document{
      {"schema", 1}, {"ready", all_needed_found(findings)}, {"findings", std::move(list)}};
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace echelon
