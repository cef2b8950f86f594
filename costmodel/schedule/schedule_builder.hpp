// Adds items and values to a draft. Internal to costmodel/schedule.
#pragma once

#include <map>
#include <optional>
#include <tuple>

#include "costmodel/schedule/schedule_draft.hpp"

namespace echelon {

/// Adds items to a draft.
class ScheduleBuilder {
 public:
  explicit ScheduleBuilder(const ScheduleSpec& spec) : spec_(spec) {
    const PipelineShape& s = spec.shape;
    draft.frame = {.kind = s.kind,
                   .ranks = s.ranks,
                   .chunks = s.chunks,
                   .microbatches = s.microbatches,
                   .group = s.kind == ScheduleKind::interleaved ? s.in_turn() : 1,
                   .units = spec.units,
                   .programs = {}};
    draft.compute.resize(static_cast<std::size_t>(s.ranks));
    // Messages of both directions come first, numbered by their sender's stage and microbatch;
    // then the norm and the tied embedding, which several ranks share too.
    messages_ = static_cast<std::uint32_t>(s.stages()) * static_cast<std::uint32_t>(s.microbatches);
    draft.nodes = 2 * messages_ + 2;
  }

  /// An item of its own; compute items in the order of their queue.
  std::uint32_t add(int rank, Op op, std::optional<int> chunk = {},
                    std::optional<int> microbatch = {}, std::optional<int> unit = {}) {
    const auto item = static_cast<std::uint32_t>(draft.items.size());
    DraftItem& made = draft.items.emplace_back();
    made.rank = rank;
    made.instruction.op = op;
    made.instruction.queue = home_queue(op);
    made.instruction.chunk = chunk;
    made.instruction.microbatch = microbatch;
    made.instruction.unit = unit;
    made.node = op == Op::norm_reduce             ? 2 * messages_
                : op == Op::reduce_tied_embedding ? 2 * messages_ + 1
                                                  : draft.nodes++;
    if (made.instruction.queue == Queue::compute) {
      draft.compute[static_cast<std::size_t>(rank)].push_back(item);
    }
    return item;
  }

  /// One end of a message; `sender` is the stage it comes from.
  std::uint32_t add_message(int rank, Op op, int chunk, int microbatch, int sender, int peer) {
    const std::uint32_t item = add(rank, op, chunk, microbatch);
    --draft.nodes;
    const bool gradient = op == Op::send_gradient || op == Op::recv_gradient;
    Instruction& i = draft.items[item].instruction;
    draft.items[item].node =
        (gradient ? messages_ : 0) +
        static_cast<std::uint32_t>(sender) * static_cast<std::uint32_t>(spec_.shape.microbatches) +
        static_cast<std::uint32_t>(microbatch);
    i.peer = peer;
    i.bytes = bytes(gradient ? sender : sender + 1).boundary;
    return item;
  }

  /// Joins the item just added, of one of the ranks that hold `stage` of the model, to the same one
  /// of the other.
  void share(std::uint32_t item, int stage) {
    DraftItem& made = draft.items[item];
    const Instruction& i = made.instruction;
    const auto [at, first] =
        shared_.try_emplace(std::tuple(i.op, stage, i.unit.value_or(-1)), made.node);
    if (first) return;
    --draft.nodes;
    made.node = at->second;
  }

  void order(std::uint32_t first, std::uint32_t second) {
    draft.orders.emplace_back(first, second);
  }

  std::int32_t value(BufferKind kind, std::int64_t bytes) {
    draft.values.push_back({.kind = kind, .bytes = bytes});
    return static_cast<std::int32_t>(draft.values.size() - 1);
  }
  /// A value that there may not be.
  void read(std::uint32_t item, std::optional<std::int32_t> value) {
    if (!value) return;
    DraftValue& v = draft.values[static_cast<std::size_t>(*value)];
    if (!draft.items[item].instruction.reads.contains(*value)) {
      draft.items[item].instruction.reads.push_back(*value);
      ++v.uses;
    }
    order(v.writer, item);
  }
  void write(std::uint32_t item, std::int32_t value) {
    DraftValue& v = draft.values[static_cast<std::size_t>(value)];
    v.writer = item;
    if (!draft.items[item].instruction.reads.contains(value)) ++v.uses;
    draft.items[item].instruction.writes.push_back(value);
  }

  [[nodiscard]] StageBytes bytes(int stage) const {
    return spec_.stages.empty() ? StageBytes{} : spec_.stages[static_cast<std::size_t>(stage)];
  }

  ScheduleDraft draft;

 private:
  const ScheduleSpec& spec_;
  std::uint32_t messages_;
  std::map<std::tuple<Op, int, int>, std::uint32_t> shared_;  ///< nodes by op, stage and unit
};

/// ZeRO-3: gathers each unit before it is needed, at most gather_slots at a time
/// (gather_slots.hpp).
void gather_parameters(const ScheduleSpec& spec, int rank, ScheduleBuilder& out);

}  // namespace echelon
