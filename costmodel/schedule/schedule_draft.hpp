// ScheduleDraft: a schedule before its communications have an order and its values a place.
// Internal to costmodel/schedule.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "costmodel/schedule/build.hpp"
#include "costmodel/schedule/makespan.hpp"

namespace echelon {

struct DraftItem {
  Instruction instruction;  ///< reads and writes are values, not buffers; no id, order, waits yet
  std::int32_t rank = 0;
  std::uint32_t node = 0;  ///< in time; the ends of one communication share it
};

/// Something that needs memory from the item that writes it to the last that reads it.
struct DraftValue {
  BufferKind kind = BufferKind::saved;
  std::int64_t bytes = 0;
  std::uint32_t writer = 0;  ///< the latest item that wrote or updated it
  std::uint32_t uses = 0;    ///< items that write or read it
};

using Edge = std::pair<std::uint32_t, std::uint32_t>;  ///< the first is over before the second

struct ScheduleDraft {
  Schedule frame;  ///< without programs
  std::vector<DraftItem> items;
  std::vector<DraftValue> values;
  std::vector<Edge> orders;                         ///< between items of one rank
  std::vector<std::vector<std::uint32_t>> compute;  ///< per rank: items of its compute queue
  std::uint32_t nodes = 0;
};

/// Everything a step has to do, with what depends on what.
[[nodiscard]] ScheduleDraft draft_schedule(const ScheduleSpec& spec);

/// When each node starts and ends if nothing but `edges` holds it up.
struct NodeTimes {
  std::vector<Seconds> start;
  std::vector<Seconds> end;
  std::vector<std::uint32_t> depth;  ///< nodes on the longest chain before it: breaks ties of time
};
[[nodiscard]] NodeTimes longest_paths(const std::vector<Seconds>& durations,
                                      const std::vector<Edge>& edges);

/// The order of everything: per rank its items as the host issues them, and per node its place
/// among all communications.
struct Lowering {
  NodeTimes times;
  std::vector<std::vector<std::uint32_t>> lists;
  std::vector<std::optional<std::int32_t>> sequence;
};
[[nodiscard]] Lowering lower(const ScheduleDraft& draft, const ScheduleCosts& costs);

/// When the last pass or message of a shape ends, from its lowering: for orders of passes that no
/// closed rule numbers. Linear in the passes.
[[nodiscard]] Seconds lowered_makespan(const PipelineShape& shape, const ScheduleCosts& costs,
                                       Messages messages);

/// The programs: ids, waits across queues, buffers.
[[nodiscard]] std::vector<Program> place(const ScheduleDraft& draft, const Lowering& lowering);

}  // namespace echelon
