// Flight record: what each queue of a rank did last, in a file that survives the process; and what
// the files of all ranks say together about a failure.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "core/run/rank_status.hpp"

namespace echelon {

/// One activity of a queue, as it lies in the file.
struct FlightEntry {
  std::uint64_t number = 0;  ///< from 1, over all queues; 0: empty. Written last
  double time = 0;           ///< seconds since the epoch
  std::uint64_t order = 0;   ///< RankProgress::order
  std::int32_t missing_count = 0;
  std::array<std::int32_t, 5> missing{};  ///< ranks it waits for
  std::array<char, 24> queue{};           ///< "rank 3 compute"; ends in 0
  std::array<char, 304> what{};           ///< "step 44 #13 F c0 m1"; ends in 0
};
static_assert(sizeof(FlightEntry) == 376);

/// The file: this, then the ring.
struct FlightHeader {
  static constexpr std::array<char, 8> kMagic = {'E', 'C', 'H', 'F', 'L', 'T', '0', '1'};
  std::array<char, 8> magic = kMagic;
  std::int32_t rank = 0;
  std::int32_t ranks = 1;
  std::int64_t process = 0;
  std::uint64_t entries = 0;  ///< of the ring
  double began = 0;           ///< seconds since the epoch
  double ended = 0;           ///< the same; 0: the process has not said how it ended
  std::array<char, 64> machine{};
  std::array<char, 32> failure{};  ///< "hang"; empty: none
  std::array<char, 1024> reason{};
  std::array<FlightEntry, 12> latest{};  ///< of each queue
};

/// "flight_2.ring"
[[nodiscard]] std::string flight_file_name(int rank);

/// The record of one rank.
struct FlightRecord {
  FlightHeader header;
  std::vector<FlightEntry> latest;   ///< of each queue
  std::vector<FlightEntry> history;  ///< oldest first
};
[[nodiscard]] Result<FlightRecord> read_flight_record(const std::string& path);

/// All ranks of a failed run.
struct FailureRecords {
  int ranks = 1;
  std::map<int, FlightRecord> of;  ///< by rank; a rank without a file is missing
};
/// Errors: no records, a file that is none, records of different runs.
[[nodiscard]] Result<FailureRecords> read_failure_records(const std::string& folder);

/// What the records say together.
struct FailureVerdict {
  enum class Kind {
    none,    ///< all ranks ended without a failure
    lost,    ///< `ranks` did not say how they ended: killed, stopped, or their machine is gone
    failed,  ///< a rank reported a failure
  };
  Kind kind = Kind::none;
  std::vector<int> ranks;  ///< of `lost`
  int reporter = 0;        ///< whose `reason` it is: the first that reported a failure
  std::string reason;      ///< empty: none reported one
  std::string waited;      ///< what the others waited for: instruction, collective, group
};
[[nodiscard]] FailureVerdict verdict_of(const FailureRecords& records);

/// For a terminal: the verdict, then what each queue of each rank did last.
[[nodiscard]] std::string failure_text(const FailureRecords& records);
/// The same as one JSON document.
[[nodiscard]] std::string failure_json(const FailureRecords& records);

}  // namespace echelon
