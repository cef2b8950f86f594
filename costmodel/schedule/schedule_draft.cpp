// What one step has to do, rank by rank: the compute order and everything around it.
#include "costmodel/schedule/schedule_builder.hpp"

namespace echelon {
namespace {

/// Values of one chunk and microbatch that outlive their forward.
struct Kept {
  std::optional<std::int32_t> batch;
  std::optional<std::int32_t> input;
  std::optional<std::int32_t> saved;
  std::optional<std::int32_t> weight_inputs;
};

/// Drafts one rank.
class RankDrafter {
 public:
  RankDrafter(const ScheduleSpec& spec, int rank, ScheduleBuilder& out)
      : spec_(spec), s_(spec.shape), rank_(rank), out_(out) {}

  void run() {
    kept_.resize(static_cast<std::size_t>(s_.chunks) * static_cast<std::size_t>(s_.microbatches));
    out_.add(rank_, Op::zero_gradients);
    for (const ComputeStep& step : compute_order(s_, rank_)) {
      if (step.op == Op::forward)
        forward(step);
      else if (step.op == Op::backward_weight)
        backward_weight(step);
      else
        backward(step);
    }
    last_compute_ = compute().back();
    if (spec_.gather_slots > 0) gather_parameters(spec_, rank_, out_);
    finish();
  }

 private:
  [[nodiscard]] std::vector<std::uint32_t>& compute() {
    return out_.draft.compute[static_cast<std::size_t>(rank_)];
  }
  Kept& kept(const ComputeStep& step) {
    return kept_[static_cast<std::size_t>(step.chunk) * static_cast<std::size_t>(s_.microbatches) +
                 static_cast<std::size_t>(step.microbatch)];
  }
  [[nodiscard]] int stage(const ComputeStep& step) const { return s_.stage(rank_, step.chunk); }
  [[nodiscard]] bool receives(const ComputeStep& step) const {
    return s_.ranks > 1 && stage(step) > 0;
  }
  [[nodiscard]] bool sends(const ComputeStep& step) const {
    return s_.ranks > 1 && stage(step) < s_.stages() - 1;
  }
  [[nodiscard]] bool reduces(const ComputeStep& step) const {
    return spec_.reduce_gradients && (step.op == Op::backward || step.op == Op::backward_weight) &&
           (spec_.reduce_every_microbatch || step.microbatch == s_.microbatches - 1);
  }
  /// Units of a step from first to last, or none: one instruction for the whole chunk. It is cut
  /// where something has to happen between its units: a gather before, a reduction after.
  [[nodiscard]] std::vector<std::optional<int>> units(const ComputeStep& step) const {
    const bool gathers = spec_.gather_slots > 0 && step.op != Op::backward_weight;
    if (!gathers && (!reduces(step) || spec_.units == 1)) return {std::nullopt};
    std::vector<std::optional<int>> all;
    for (int u = 0; u < spec_.units; ++u) {
      all.push_back(step.op == Op::forward ? u : spec_.units - 1 - u);
    }
    return all;
  }
  std::uint32_t add(const ComputeStep& step, std::optional<int> unit) {
    return out_.add(rank_, step.op, step.chunk, step.microbatch, unit);
  }
  std::uint32_t message(Op op, const ComputeStep& step, int sender, int up) {
    return out_.add_message(rank_, op, step.chunk, step.microbatch, sender,
                            (rank_ + up + s_.ranks) % s_.ranks);
  }

  void load(const ComputeStep& step) {
    const std::uint32_t item = out_.add(rank_, Op::load_batch, step.chunk, step.microbatch);
    out_.draft.items[item].instruction.bytes = spec_.batch_bytes;
    const auto ahead = static_cast<std::size_t>(std::max(spec_.batches_ahead, 1));
    if (loaded_forwards_.size() >= ahead) {
      out_.order(loaded_forwards_[loaded_forwards_.size() - ahead], item);
    }
    kept(step).batch = out_.value(BufferKind::batch, spec_.batch_bytes);
    out_.write(item, *kept(step).batch);
  }

  void forward(const ComputeStep& step) {
    const StageBytes bytes = out_.bytes(stage(step));
    Kept& k = kept(step);
    const bool loads = stage(step) == 0 || stage(step) == s_.stages() - 1;
    if (loads) load(step);
    if (receives(step)) {
      k.input = out_.value(BufferKind::input, bytes.boundary);
      out_.write(message(Op::recv_activation, step, stage(step) - 1, -1), *k.input);
    }
    k.saved = out_.value(BufferKind::saved, bytes.saved);
    std::uint32_t item = 0;
    for (const std::optional<int> unit : units(step)) {
      item = add(step, unit);
      if (unit.value_or(0) > 0) {
        out_.read(item, k.saved);
      } else {
        out_.read(item, k.batch);
        out_.read(item, k.input);
      }
      out_.write(item, *k.saved);
    }
    if (loads) loaded_forwards_.push_back(item);
    if (!sends(step)) return;
    const std::int32_t output =
        out_.value(BufferKind::output, out_.bytes(stage(step) + 1).boundary);
    out_.write(item, output);
    out_.read(message(Op::send_activation, step, stage(step), +1), output);
  }

  /// A backward, or its input-gradient half.
  void backward(const ComputeStep& step) {
    const StageBytes bytes = out_.bytes(stage(step));
    Kept& k = kept(step);
    std::optional<std::int32_t> gradient;
    if (sends(step)) {
      gradient = out_.value(BufferKind::output_gradient, out_.bytes(stage(step) + 1).boundary);
      out_.write(message(Op::recv_gradient, step, stage(step) + 1, +1), *gradient);
    }
    if (step.op == Op::backward_input) {
      k.weight_inputs = out_.value(BufferKind::weight_inputs, bytes.weight_inputs);
    }
    const std::vector<std::optional<int>> parts = units(step);
    std::uint32_t item = 0;
    for (const std::optional<int> unit : parts) {
      item = add(step, unit);
      const bool top = unit == parts.front();
      const bool bottom = unit == parts.back();
      out_.read(item, k.saved);
      if (top) out_.read(item, gradient);
      if (top || bottom) out_.read(item, k.batch);
      if (bottom) out_.read(item, k.input);
      if (k.weight_inputs) {
        if (!top) out_.read(item, k.weight_inputs);
        out_.write(item, *k.weight_inputs);
      }
      reduce(step, unit, item);
    }
    if (!receives(step)) return;
    const std::int32_t input_gradient = out_.value(BufferKind::input_gradient, bytes.boundary);
    out_.write(item, input_gradient);
    out_.read(message(Op::send_gradient, step, stage(step), -1), input_gradient);
  }

  void backward_weight(const ComputeStep& step) {
    const Kept& k = kept(step);
    for (const std::optional<int> unit : units(step)) {
      const std::uint32_t item = add(step, unit);
      for (const std::optional<std::int32_t>& value :
           {k.saved, k.weight_inputs, k.input, k.batch}) {
        out_.read(item, value);
      }
      reduce(step, unit, item);
    }
  }

  /// Reduces the bucket that `backward` completes.
  void reduce(const ComputeStep& step, std::optional<int> unit, std::uint32_t backward) {
    if (!reduces(step)) return;
    std::optional<int> microbatch;
    if (spec_.reduce_every_microbatch) microbatch = step.microbatch;
    const std::uint32_t item =
        out_.add(rank_, Op::reduce_gradients, step.chunk, microbatch, unit.value_or(0));
    out_.draft.items[item].instruction.bytes = out_.bytes(stage(step)).gradients;
    out_.order(backward, item);
    reductions_.push_back(item);
  }

  void finish() {
    if (spec_.tied_embedding && s_.ranks > 1 && (rank_ == 0 || rank_ == s_.ranks - 1)) {
      const std::uint32_t tied = out_.add(rank_, Op::reduce_tied_embedding);
      out_.draft.items[tied].instruction.bytes = spec_.tied_bytes;
      out_.draft.items[tied].instruction.peer = s_.ranks - 1 - rank_;
      out_.order(last_compute_, tied);
      // Both ends add sums over dp, or both add their own gradients: never one of each.
      for (const std::uint32_t item : reductions_) out_.order(item, tied);
      reductions_.push_back(tied);
    }
    if (spec_.clip) {
      const std::uint32_t norm = out_.add(rank_, Op::norm_reduce);
      out_.draft.items[norm].instruction.bytes = kNormBytes;
      out_.order(last_compute_, norm);
      for (const std::uint32_t item : reductions_) out_.order(item, norm);
      out_.order(norm, out_.add(rank_, Op::clip));
    }
    const std::uint32_t step = out_.add(rank_, Op::optimizer_step);
    for (const std::uint32_t item : reductions_) out_.order(item, step);
    if (!spec_.gather_updated) return;
    for (int chunk = 0; chunk < s_.chunks; ++chunk) {
      const std::uint32_t item = out_.add(rank_, Op::gather_updated, chunk);
      out_.draft.items[item].instruction.bytes =
          out_.bytes(s_.stage(rank_, chunk)).parameters * spec_.units;
      out_.order(step, item);
    }
  }

  static constexpr std::int64_t kNormBytes = 4;  // one fp32

  const ScheduleSpec& spec_;
  const PipelineShape& s_;
  int rank_;
  ScheduleBuilder& out_;
  std::vector<Kept> kept_;
  std::vector<std::uint32_t> loaded_forwards_;
  std::vector<std::uint32_t> reductions_;
  std::uint32_t last_compute_ = 0;
};

}  // namespace

ScheduleDraft draft_schedule(const ScheduleSpec& spec) {
  EXPECTS(spec.units >= 1 && spec.gather_slots >= 0, "units and slots are counts");
  EXPECTS(
      spec.stages.empty() || spec.stages.size() == static_cast<std::size_t>(spec.shape.stages()),
      "bytes of every stage");
  ScheduleBuilder drafter(spec);
  for (int rank = 0; rank < spec.shape.ranks; ++rank) RankDrafter(spec, rank, drafter).run();
  return std::move(drafter.draft);
}

}  // namespace echelon
