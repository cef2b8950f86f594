#include "core/run/flight_record.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <span>
#include <string_view>

#include "core/base/files.hpp"

namespace echelon {
namespace {

template <std::size_t n>
std::string text_of(const std::array<char, n>& chars) {
  return {chars.begin(), std::find(chars.begin(), chars.end(), '\0')};
}

Error no_record(const std::string& path) {
  return input_error(path, "not a flight record", "a file that plan run --flight-recorder wrote");
}

/// The wait that comes first in the run, over all ranks.
const FlightEntry* first_wait(const FailureRecords& records, const std::vector<int>& guilty) {
  const FlightEntry* first = nullptr;
  for (const auto& [rank, record] : records.of) {
    if (std::find(guilty.begin(), guilty.end(), rank) != guilty.end()) continue;
    for (const FlightEntry& each : record.latest) {
      if (each.missing_count == 0) continue;
      if (first == nullptr || each.order < first->order) first = &each;
    }
  }
  return first;
}

const FlightRecord* first_failure(const FailureRecords& records) {
  const FlightRecord* first = nullptr;
  for (const auto& [rank, record] : records.of) {
    if (record.header.failure.front() == '\0') continue;
    if (first == nullptr || record.header.ended < first->header.ended) first = &record;
  }
  return first;
}

std::string ranks_text(const std::vector<int>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

std::string rank_text(int rank, const FlightRecord* record) {
  if (record == nullptr) return fmt::format("\nrank {}: no record\n", rank);
  const FlightHeader& h = record->header;
  std::string text =
      fmt::format("\nrank {} (process {} on {}): {}\n", rank, h.process, text_of(h.machine),
                  h.ended == 0                ? "did not say how it ended"
                  : h.failure.front() == '\0' ? "ended without a failure of its own"
                                              : "ended with: " + text_of(h.failure));
  double last = h.began;
  for (const FlightEntry& each : record->latest) last = std::max(last, each.time);
  for (const FlightEntry& each : record->latest) {
    text += fmt::format("  {:<22} {}  ({:.1f} s before its last sign of life)\n",
                        text_of(each.queue), text_of(each.what), last - each.time);
  }
  return text;
}

}  // namespace

std::string flight_file_name(int rank) { return "flight_" + std::to_string(rank) + ".ring"; }

Result<FlightRecord> read_flight_record(const std::string& path) {
  constexpr std::int64_t kLongest = std::int64_t{64} << 20;
  const Result<std::string> bytes = read_file(path, kLongest);
  if (!bytes) return bytes.error();
  FlightRecord record;
  FlightHeader& header = record.header;
  if (bytes->size() < sizeof header) return no_record(path);
  std::memcpy(&header, bytes->data(), sizeof header);
  const std::size_t rest = bytes->size() - sizeof header;
  if (header.magic != FlightHeader::kMagic || header.entries != rest / sizeof(FlightEntry) ||
      header.rank < 0 || header.rank >= header.ranks) {
    return no_record(path);
  }
  const auto keep = [](const FlightEntry& entry, std::vector<FlightEntry>& to) {
    const bool sane = entry.missing_count >= 0 &&
                      entry.missing_count <= static_cast<std::int32_t>(entry.missing.size());
    if (entry.number > 0 && sane) to.push_back(entry);
  };
  for (const FlightEntry& each : header.latest) keep(each, record.latest);
  for (std::size_t i = 0; i < header.entries; ++i) {
    FlightEntry entry;
    std::memcpy(&entry, bytes->data() + sizeof header + i * sizeof entry, sizeof entry);
    keep(entry, record.history);
  }
  std::sort(record.history.begin(), record.history.end(),
            [](const FlightEntry& a, const FlightEntry& b) { return a.number < b.number; });
  return record;
}

Result<FailureRecords> read_failure_records(const std::string& folder) {
  FailureRecords records;
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failed)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("flight_") || !name.ends_with(".ring")) continue;
    Result<FlightRecord> record = read_flight_record(entry.path().string());
    if (!record) return record.error();
    if (!records.of.empty() && records.ranks != record->header.ranks) {
      return input_error(entry.path().string(),
                         fmt::format("a record of a run of {} ranks", record->header.ranks),
                         fmt::format("records of one run, of {} ranks", records.ranks),
                         "remove the records of earlier runs");
    }
    records.ranks = record->header.ranks;
    records.of.emplace(record->header.rank, *std::move(record));
  }
  if (failed) return input_error(folder, failed.message(), "a folder of flight records");
  if (records.of.empty()) {
    return input_error(folder, "no flight records (flight_RANK.ring)",
                       "the folder of plan run --flight-recorder, or flight in that of "
                       "--checkpoint-dir");
  }
  return records;
}

FailureVerdict verdict_of(const FailureRecords& records) {
  FailureVerdict verdict;
  for (int rank = 0; rank < records.ranks; ++rank) {
    const auto found = records.of.find(rank);
    if (found == records.of.end() || found->second.header.ended == 0) verdict.ranks.push_back(rank);
  }
  const FlightRecord* failure = first_failure(records);
  if (failure != nullptr) {
    verdict.kind = FailureVerdict::Kind::failed;
    verdict.reporter = failure->header.rank;
    verdict.reason = text_of(failure->header.reason);
  }
  if (!verdict.ranks.empty()) verdict.kind = FailureVerdict::Kind::lost;
  const FlightEntry* wait = first_wait(records, verdict.ranks);
  if (verdict.kind == FailureVerdict::Kind::none || wait == nullptr) return verdict;
  verdict.waited = text_of(wait->queue) + ": " + text_of(wait->what);
  return verdict;
}

std::string failure_text(const FailureRecords& records) {
  const FailureVerdict verdict = verdict_of(records);
  std::string text;
  switch (verdict.kind) {
    case FailureVerdict::Kind::none: text = "No rank reports a failure.\n"; break;
    case FailureVerdict::Kind::failed:
      text = fmt::format("rank {} reports: {}\n", verdict.reporter, verdict.reason);
      break;
    case FailureVerdict::Kind::lost:
      text = fmt::format("{} did not say how it ended: killed, stopped, or the machine is gone\n",
                         ranks_text(verdict.ranks));
      if (verdict.reason.empty()) break;
      text += fmt::format("rank {} reports: {}\n", verdict.reporter, verdict.reason);
  }
  if (!verdict.waited.empty()) text += "the first wait: " + verdict.waited + "\n";
  for (int rank = 0; rank < records.ranks; ++rank) {
    const auto found = records.of.find(rank);
    text += rank_text(rank, found == records.of.end() ? nullptr : &found->second);
  }
  return text;
}

}  // namespace echelon
