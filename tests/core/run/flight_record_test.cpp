#include "core/run/flight_record.hpp"

#include <cstring>

#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/support/text.hpp"

using namespace echelon;
using echelon::test::lacks;

namespace {

void write_record(const TempDir& folder, const FlightHeader& header) {
  std::string bytes(sizeof header, '\0');
  std::memcpy(bytes.data(), &header, sizeof header);
  bytes.append(header.entries * sizeof(FlightEntry), '\0');
  folder.write(flight_file_name(header.rank), bytes);
}

FlightHeader header_of(int rank, double ended) {
  FlightHeader header;
  header.rank = rank;
  header.ranks = 2;
  header.entries = 4;
  header.ended = ended;
  return header;
}

void put(FlightEntry& entry, const char* queue, const char* what, int missing) {
  entry.number = 1;
  std::strcpy(entry.queue.data(), queue);
  std::strcpy(entry.what.data(), what);
  if (missing < 0) return;
  entry.missing_count = 1;
  entry.missing[0] = missing;
}

}  // namespace

TEST_CASE("a rank that did not say how it ended is guilty, whatever the others report") {
  const TempDir folder;
  FlightHeader survivor = header_of(0, 20);
  std::strcpy(survivor.failure.data(), "peer lost");
  std::strcpy(survivor.reason.data(), "rank 1 is gone");
  put(survivor.latest[0], "rank 0 reduce", "step 7 #9 norm, all_reduce waits for rank 1", 1);
  write_record(folder, survivor);
  FlightHeader killed = header_of(1, 0);
  put(killed.latest[0], "rank 1 compute", "step 7 #2 F c0 m0", -1);
  write_record(folder, killed);
  const FailureRecords records = read_failure_records(folder.path().string()).value();
  const std::string text = failure_text(records);
  CHECK(text.starts_with("rank 1 did not say how it ended"));
  CHECK(lacks(text, "rank 0 reports: rank 1 is gone") == "");
  CHECK(lacks(text, "the first wait: rank 0 reduce: step 7 #9 norm, all_reduce waits for rank 1") ==
        "");
  CHECK(lacks(text, "rank 1 compute") == "");
  CHECK(lacks(text, "step 7 #2 F c0 m0") == "");
  CHECK(lacks(failure_json(records), "\"lost\":[1]") == "");
}

TEST_CASE("files that are no flight records of one run are refused") {
  const TempDir folder;
  const auto refusal = [&] {
    const auto records = read_failure_records(folder.path().string());
    return records ? "accepted" : records.error().message();
  };
  CHECK(lacks(refusal(), "no flight records (flight_RANK.ring)") == "");
  folder.write("flight_0.ring", "short");
  CHECK(lacks(refusal(), "flight_0.ring: not a flight record") == "");
  folder.write("flight_0.ring", std::string(100'000, 'x'));
  CHECK(lacks(refusal(), "flight_0.ring: not a flight record") == "");
  write_record(folder, header_of(0, 1));
  FlightHeader other = header_of(1, 1);
  other.ranks = 3;
  write_record(folder, other);
  CHECK(lacks(refusal(), "records of one run") == "");
}
