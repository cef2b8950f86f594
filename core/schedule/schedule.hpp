// Schedule: the instructions of every pipeline rank in one optimizer step. The planner writes it
// into the plan file and the runtime executes it. docs/schedules.md explains it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"
#include "core/plan/stage_placement.hpp"

namespace echelon {

enum class Op : std::uint8_t {
  load_batch,
  forward,
  backward,
  backward_input,
  backward_weight,
  send_activation,
  recv_activation,
  send_gradient,
  recv_gradient,
  gather_parameters,
  release_parameters,
  reduce_gradients,
  reduce_tied_embedding,
  norm_reduce,
  clip,
  optimizer_step,
  gather_updated,
  zero_gradients
};
inline constexpr int kOps = 18;

/// Instructions of one queue run in order; queues run concurrently.
enum class Queue : std::uint8_t { compute, p2p_forward, p2p_backward, gather, reduce, host };
inline constexpr int kQueues = 6;

[[nodiscard]] std::string_view name_of(Op op);        ///< "send_f", as in the text form
[[nodiscard]] std::string_view name_of(Queue queue);  ///< "p2p_forward"
[[nodiscard]] Queue home_queue(Op op);                ///< default queue of an op
/// Whether other ranks take part, so that all ranks must agree on the order of these instructions.
[[nodiscard]] bool is_communication(Op op);

/// Up to N values without heap allocation: a schedule has hundreds of thousands of instructions.
template <class T, int N>
class Few {
 public:
  void push_back(T value) {
    EXPECTS(size_ < N, "no room for another value");
    values_[static_cast<std::size_t>(size_++)] = value;
  }
  [[nodiscard]] const T* begin() const { return values_.data(); }
  [[nodiscard]] const T* end() const { return values_.data() + size_; }
  [[nodiscard]] T* begin() { return values_.data(); }
  [[nodiscard]] T* end() { return values_.data() + size_; }
  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] bool contains(T value) const { return std::find(begin(), end(), value) != end(); }
  bool operator==(const Few& o) const { return std::equal(begin(), end(), o.begin(), o.end()); }

 private:
  std::array<T, N> values_{};
  std::int32_t size_ = 0;
};

/// One entry of a rank's list, at the granularity of chunk, bucket and gather unit. Its op decides
/// which of the optional fields it has (docs/schedules.md); check_schedule verifies it.
struct Instruction {
  std::uint32_t id = 0;  ///< its position in the rank's list
  Op op = Op::forward;
  Queue queue = Queue::compute;
  std::optional<std::int32_t> chunk;       ///< of this rank; Schedule::stage gives its stage
  std::optional<std::int32_t> microbatch;  ///< none for a reduction: it is the sum over all
  std::optional<std::int32_t> unit;        ///< gather unit or gradient bucket; none: all units
  std::optional<std::int32_t> peer;        ///< pipeline rank of the other endpoint
  std::optional<std::int32_t> sequence;    ///< position in the order of all communications
  Few<std::uint32_t, kQueues - 1>
      after;                   ///< dependencies on other queues of this rank; at most one per queue
  Few<std::int32_t, 5> reads;  ///< buffers
  Few<std::int32_t, 3> writes;
  std::int64_t bytes = 0;  ///< payload that the executor sends, in whole bytes
  bool operator==(const Instruction&) const = default;
};

/// Content of a buffer; docs/schedules.md lists the instructions that write and read it.
enum class BufferKind : std::uint8_t {
  batch,
  input,
  saved,
  output,
  output_gradient,
  input_gradient,
  weight_inputs,
  parameters
};
inline constexpr int kBufferKinds = 8;
[[nodiscard]] std::string_view name_of(BufferKind kind);

/// A range of the rank's arena that holds one value after another.
struct Buffer {
  BufferKind kind = BufferKind::saved;
  std::int64_t bytes = 0;
  std::int64_t offset = 0;
  bool operator==(const Buffer&) const = default;
};

/// The program of one pipeline rank. Instructions are listed in the order in which the host issues
/// them.
struct Program {
  std::vector<Buffer> buffers;
  std::vector<Instruction> instructions;
  bool operator==(const Program&) const = default;
};

/// The units from `first` to before `end`.
struct UnitRange {
  std::int32_t first = 0;
  std::int32_t end = 0;
  [[nodiscard]] std::int32_t count() const { return end - first; }
};

struct Schedule {
  ScheduleKind kind = ScheduleKind::one_f_one_b;
  std::int32_t ranks = 1;         ///< pipeline ranks
  std::int32_t chunks = 1;        ///< per rank
  std::int32_t microbatches = 1;  ///< of each chunk: DualPipe's directions number their own half
  std::int32_t group = 1;         ///< interleaved: microbatches of a chunk in turn, ranks or more
  std::int32_t units = 1;         ///< per chunk
  std::vector<Program> programs;  ///< one per pipeline rank
  bool operator==(const Schedule&) const = default;

  [[nodiscard]] StagePlacement placement() const { return {kind, ranks, chunks}; }
  [[nodiscard]] std::int32_t stage(std::int32_t rank, std::int32_t chunk) const {
    return placement().stage(rank, chunk);
  }
  /// The units of its chunk that an instruction is for.
  [[nodiscard]] UnitRange units_of(const Instruction& i) const {
    return i.unit ? UnitRange{*i.unit, *i.unit + 1} : UnitRange{0, units};
  }
};

/// "rank 2 #17 send_f c0 m3": the name of an instruction in messages.
[[nodiscard]] std::string describe(int rank, const Instruction& instruction);

/// The text form, one line per instruction; the same schedule gives the same bytes.
[[nodiscard]] std::string to_text(const Schedule& schedule);
/// Reads the text form. Any accepted text is identical, byte for byte, to the output of to_text;
/// memory is bounded by a multiple of the text's size. Errors give the line, the text found and the
/// text expected.
[[nodiscard]] Result<Schedule> parse_schedule_text(std::string_view text, std::string_view where);

}  // namespace echelon
