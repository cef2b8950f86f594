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
  std::optional<std::int32_t> gradient;  ///< of the output, from the next stage on this rank
};

/// A forward that runs together with the next backward.
struct PairedForward {
  std::uint32_t first = 0;  ///< item
  std::optional<std::uint32_t> send;
};

/// Drafts one rank.
class RankDrafter {
 public:
  RankDrafter(const ScheduleSpec& spec, int rank, ScheduleBuilder& out)
      : spec_(spec), s_(spec.shape), placement_(s_.placement()), rank_(rank), out_(out) {}

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
  Kept& kept(int chunk, int microbatch) {
    return kept_[static_cast<std::size_t>(chunk) * static_cast<std::size_t>(s_.microbatches) +
                 static_cast<std::size_t>(microbatch)];
  }
  Kept& kept(const ComputeStep& step) { return kept(step.chunk, step.microbatch); }
  [[nodiscard]] int stage(const ComputeStep& step) const { return s_.stage(rank_, step.chunk); }
  [[nodiscard]] bool enters(const ComputeStep& step) const {
    return placement_.enters(stage(step));
  }
  [[nodiscard]] bool receives(const ComputeStep& step) const {
    return !enters(step) && placement_.sends(stage(step) - 1);
  }
  [[nodiscard]] bool sends(const ComputeStep& step) const { return placement_.sends(stage(step)); }
  /// Whether the rank holds the next stage (the one before) as well.
  [[nodiscard]] bool keeps_output(const ComputeStep& step) const {
    return placement_.stays(stage(step));
  }
  [[nodiscard]] bool keeps_gradient(const ComputeStep& step) const {
    return !enters(step) && !receives(step);
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
  /// `sender` and `other`: the stage that sends, and the one at the other end.
  std::uint32_t message(Op op, const ComputeStep& step, int sender, int other) {
    return out_.add_message(rank_, op, step.chunk, step.microbatch, sender,
                            placement_.rank_of(other));
  }

  /// Whether another rank holds each stage too, with which this one sums its gradients.
  [[nodiscard]] bool copied() const { return s_.kind == ScheduleKind::dualpipe; }

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
    const bool loads = enters(step) || placement_.leaves(stage(step));
    if (loads) load(step);
    if (receives(step)) {
      k.input = out_.value(BufferKind::input, bytes.boundary);
      out_.write(message(Op::recv_activation, step, stage(step) - 1, stage(step) - 1), *k.input);
    }
    k.saved = out_.value(BufferKind::saved, bytes.saved);
    std::uint32_t item = 0;
    if (step.paired) paired_.emplace();
    for (const std::optional<int> unit : units(step)) {
      item = add(step, unit);
      if (step.paired && unit.value_or(0) == 0) paired_->first = item;
      if (unit.value_or(0) > 0) {
        out_.read(item, k.saved);
      } else {
        out_.read(item, k.batch);
        out_.read(item, k.input);
      }
      out_.write(item, *k.saved);
    }
    if (loads) loaded_forwards_.push_back(item);
    if (placement_.leaves(stage(step))) return;
    const std::int64_t output_bytes = out_.bytes(stage(step) + 1).boundary;
    if (keeps_output(step)) {
      Kept& next = kept(step.chunk + 1, step.microbatch);
      next.input = out_.value(BufferKind::input, output_bytes);
      return out_.write(item, *next.input);
    }
    const std::int32_t output = out_.value(BufferKind::output, output_bytes);
    out_.write(item, output);
    const std::uint32_t send = message(Op::send_activation, step, stage(step), stage(step) + 1);
    out_.read(send, output);
    if (step.paired) paired_->send = send;
  }

  /// Joins the forward before to a backward: it waits for the gradient that the backward needs, and
  /// what it sends leaves after the backward.
  void join_pair(std::optional<std::uint32_t> received, std::uint32_t last) {
    if (!paired_) return;
    if (received) out_.order(*received, paired_->first);
    if (paired_->send) out_.order(last, *paired_->send);
    paired_.reset();
  }

  /// A backward, or its input-gradient half.
  void backward(const ComputeStep& step) {
    const StageBytes bytes = out_.bytes(stage(step));
    Kept& k = kept(step);
    std::optional<std::int32_t> gradient = k.gradient;
    std::optional<std::uint32_t> received;
    if (sends(step)) {
      gradient = out_.value(BufferKind::output_gradient, out_.bytes(stage(step) + 1).boundary);
      received = message(Op::recv_gradient, step, stage(step) + 1, stage(step) + 1);
      out_.write(*received, *gradient);
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
    join_pair(received, item);
    if (keeps_gradient(step)) {
      Kept& before = kept(step.chunk - 1, step.microbatch);
      before.gradient = out_.value(BufferKind::output_gradient, bytes.boundary);
      out_.write(item, *before.gradient);
    }
    if (!receives(step)) return;
    const std::int32_t input_gradient = out_.value(BufferKind::input_gradient, bytes.boundary);
    out_.write(item, input_gradient);
    out_.read(message(Op::send_gradient, step, stage(step), stage(step) - 1), input_gradient);
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
    if (copied()) out_.share(item, stage(step) % s_.ranks);
    out_.order(backward, item);
    reductions_.push_back(item);
  }

  void finish() {
    const int head = placement_.last_rank();
    if (spec_.tied_embedding && head > 0 && (rank_ == 0 || rank_ == head)) {
      const std::uint32_t tied = out_.add(rank_, Op::reduce_tied_embedding);
      out_.draft.items[tied].instruction.bytes = spec_.tied_bytes;
      out_.draft.items[tied].instruction.peer = head - rank_;
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
      if (copied()) out_.share(item, s_.stage(rank_, chunk) % s_.ranks);
      out_.order(step, item);
    }
  }

  static constexpr std::int64_t kNormBytes = 4;  // one fp32

  const ScheduleSpec& spec_;
  const PipelineShape& s_;
  StagePlacement placement_;
  int rank_;
  ScheduleBuilder& out_;
  std::optional<PairedForward> paired_;
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
  EXPECTS(spec.shape.kind != ScheduleKind::dualpipe ||
              (!spec.reduce_every_microbatch && spec.gather_slots == 0),
          "the two copies of a stage are summed once a step, and gathered after it");
  ScheduleBuilder drafter(spec);
  for (int rank = 0; rank < spec.shape.ranks; ++rank) RankDrafter(spec, rank, drafter).run();
  return std::move(drafter.draft);
}

}  // namespace echelon
