#include <algorithm>
#include <string>

#include "core/json/json_io.hpp"
#include "core/run/flight_record.hpp"

namespace echelon {
namespace {

template <std::size_t n>
std::string string_of(const std::array<char, n>& chars) {
  return {chars.begin(), std::find(chars.begin(), chars.end(), '\0')};
}

Json entry_json(const FlightEntry& entry) {
  Json missing = Json::array();
  for (std::int32_t i = 0; i < entry.missing_count; ++i)
    missing.push_back(entry.missing[static_cast<std::size_t>(i)]);
  return Json{{"queue", string_of(entry.queue)},
              {"what", string_of(entry.what)},
              {"time", entry.time},
              {"waits_for", std::move(missing)}};
}

}  // namespace

std::string failure_json(const FailureRecords& records) {
  constexpr const char* kKinds[] = {"none", "lost", "failed"};
  const FailureVerdict verdict = verdict_of(records);
  Json ranks = Json::array();
  for (const auto& [rank, record] : records.of) {
    Json queues = Json::array();
    for (const FlightEntry& each : record.latest) queues.push_back(entry_json(each));
    ranks.push_back({{"rank", rank},
                     {"process", record.header.process},
                     {"machine", string_of(record.header.machine)},
                     {"ended", record.header.ended != 0},
                     {"failure", string_of(record.header.failure)},
                     {"reason", string_of(record.header.reason)},
                     {"queues", std::move(queues)}});
  }
  return Json{{"schema", 1},
              {"verdict", kKinds[static_cast<int>(verdict.kind)]},
              {"lost", verdict.ranks},
              {"reason", verdict.reason},
              {"first_wait", verdict.waited},
              {"ranks", std::move(ranks)}}
             .dump() +
         "\n";
}

}  // namespace echelon
