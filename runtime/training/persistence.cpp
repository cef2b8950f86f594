#include "runtime/training/persistence.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>
#include <type_traits>

#include "core/base/content_hash.hpp"
#include "runtime/io/weights/checkpoint_layout.hpp"
#include "runtime/io/weights/huggingface.hpp"
#include "runtime/model/initial.hpp"

namespace echelon {
namespace {

constexpr int kCheckpointsKept = 2;
constexpr std::size_t kLossesKept = 20;

template <class T>
constexpr bool kHasMaster = !std::is_same_v<T, Wide<T>>;

template <class T>
StateFormat format_of() {
  StateFormat format;
  format.weight = Number<T>::kElement;
  if (kHasMaster<T>) format.master = Number<Wide<T>>::kElement;
  format.moment = Number<Wide<T>>::kElement;
  return format;
}

/// The states this rank owns: of replicated states only those of the first rank.
template <class T>
std::vector<StateSpan> own_spans(const std::vector<OptimizerState<T>*>& chunks) {
  constexpr Element kWide = Number<Wide<T>>::kElement;
  std::vector<StateSpan> spans;
  for (OptimizerState<T>* states : chunks) {
    if (states->zero_groups().replica != 0) continue;
    for (FlatState<T>& r : states->flat_states()) {
      const auto add = [&](StateKind kind, void* data, Element element) {
        append_spans(*r.layout, kind, r.begin, r.end, data, element, spans);
      };
      add(StateKind::weight, r.own_weights, Number<T>::kElement);
      if (kHasMaster<T>) add(StateKind::master, r.master, kWide);
      for (std::size_t k = 0; k < kOptimizerStates; ++k)
        add(OptimizerStep::kStates[k], r.states[k], kWide);
    }
  }
  return spans;
}

/// A block of the processor for the host to fill: the block itself, or a copy that is uploaded at
/// the end.
template <class E, class T>
class Filling {
 public:
  Filling(Processor<T>& processor, E* block, std::int64_t count)
      : processor_(processor), block_(block) {
    if (!processor.in_host_memory()) copy_.resize(static_cast<std::size_t>(count));
  }
  [[nodiscard]] E* data() { return copy_.empty() ? block_ : copy_.data(); }
  void finish() {
    if (copy_.empty()) return;
    processor_.write(copy_.data(), block_, static_cast<std::int64_t>(copy_.size() * sizeof(E)));
  }

 private:
  Processor<T>& processor_;
  E* block_;
  std::vector<E> copy_;
};

template <class T>
CheckpointGroup group_of(int rank, int ranks, Processor<T>& processor,
                         const std::function<bool(bool)>& agree) {
  CheckpointGroup group{.member = rank, .members = ranks, .agree = agree, .read = {}};
  if (!processor.in_host_memory()) {
    group.read = [&](const void* from, void* host, std::int64_t bytes) {
      processor.read(from, host, bytes);
    };
  }
  return group;
}

}  // namespace

template <class T>
Persistence<T>::Persistence(const PlanFile& plan, const RunSettings& settings)
    : plan_(plan), settings_(settings) {}

template <class T>
RunIdentity Persistence<T>::identity() const {
  const ParallelPlan& p = plan_.plan;
  RunIdentity run;
  run.model = plan_.model;
  run.plan = fmt::format("tp {}, pp {}, vpp {}, dp {}, microbatch {}, ZeRO {}", p.tp, p.pp, p.vpp,
                         p.dp, p.microbatch, p.zero);
  run.plan_hash = content_hash(plan_.program);
  run.data = settings_.data.empty() ? "synthetic" : settings_.data;
  return run;
}

template <class T>
Result<std::int64_t> Persistence<T>::find(const std::function<void(const RunEvent&)>& notify) {
  if (!settings_.export_to.empty()) {
    HuggingFaceNames names{};
    const Result<std::string> form = huggingface_config(plan_.model, Number<T>::kElement, names);
    if (!form) return form.error();
  }
  if (!settings_.init_from.empty() && !settings_.resume) {
    Result<HuggingFaceWeights> opened = HuggingFaceWeights::open(settings_.init_from, plan_.model);
    if (!opened) {
      Error error = opened.error();
      error.where = "--init-from: " + error.where;
      return error;
    }
    given_ = *std::move(opened);
  }
  if (!settings_.resume) {
    if (settings_.checkpoint_dir.empty()) return 0;
    const Result<std::vector<std::int64_t>> there = checkpoint_steps(settings_.checkpoint_dir);
    if (!there) return there.error();
    if (there->empty()) return 0;
    return input_error("--checkpoint-dir",
                       fmt::format("{} holds checkpoints of an earlier run, the latest at step {}",
                                   settings_.checkpoint_dir, there->front()),
                       "an empty directory", "--resume continues from there");
  }
  Result<std::optional<FoundCheckpoint>> found =
      find_checkpoint(settings_.checkpoint_dir, identity());
  if (!found) return found.error();
  if (!*found) {
    return input_error("--resume", "no checkpoint in " + settings_.checkpoint_dir,
                       "a directory with checkpoints of a run", "omit --resume to start anew");
  }
  found_ = **std::move(found);
  const Progress& progress = found_->contents.progress;
  if (progress.seed != settings_.seed) {
    return input_error("--seed", fmt::format("{}", settings_.seed),
                       fmt::format("{}, that of the checkpoint {}", progress.seed, found_->path));
  }
  losses_ = progress.losses;
  for (const std::string& note : found_->notes)
    notify({.kind = RunEvent::Kind::note, .step = {}, .of = 0, .text = note});
  notify({.kind = RunEvent::Kind::note,
          .step = {},
          .of = 0,
          .text = fmt::format("resuming from {} after {} steps", found_->path, progress.step)});
  return progress.step;
}

/// Elements [begin, end) of the weights.
template <class T>
Status Persistence<T>::fill_weights(const FlatParameters& flat, std::int64_t begin,
                                    std::int64_t end, T* out) const {
  if (!given_) {
    fill_initial(flat, settings_.seed, begin, end, out);
    return Done{};
  }
  std::vector<T> block;
  for (const Parameter& p : flat.parameters) {
    block.resize(static_cast<std::size_t>(p.count()));
    if (Status read = given_->read(p, block.data(), Number<T>::kElement); !read) return read;
    const std::int64_t from = std::max(begin, p.offset);
    const std::int64_t to = std::min(end, p.offset + p.count());
    if (from < to) std::copy_n(block.data() + (from - p.offset), to - from, out + (from - begin));
  }
  return Done{};
}

/// One set of flat parameters after the other, so that copies in host memory stay small.
template <class T>
Status Persistence<T>::fill(const std::vector<OptimizerState<T>*>& chunks,
                            Processor<T>& processor) const {
  for (OptimizerState<T>* states : chunks) {
    for (FlatState<T>& r : states->flat_states()) {
      const bool whole = r.weights != nullptr;
      const std::int64_t begin = whole ? 0 : r.begin;
      const std::int64_t end = whole ? r.layout->padded : r.end;
      Filling<T, T> weights(processor, whole ? r.weights : r.own_weights, end - begin);
      if (!found_) {
        if (Status filled = fill_weights(*r.layout, begin, end, weights.data()); !filled)
          return filled;
        weights.finish();
        states->take_weights_as_master(processor.on(Queue::compute), r);
        continue;
      }
      Filling<Wide<T>, T> master(processor, r.master, kHasMaster<T> ? r.own() : 0);
      std::vector<Filling<Wide<T>, T>> states_of_optimizer;
      for (Wide<T>* const each : r.states)
        states_of_optimizer.emplace_back(processor, each, r.own());
      std::vector<StateSpan> spans;
      append_spans(*r.layout, StateKind::weight, begin, end, weights.data(), Number<T>::kElement,
                   spans);
      const auto add = [&](StateKind kind, Wide<T>* data) {
        append_spans(*r.layout, kind, r.begin, r.end, data, Number<Wide<T>>::kElement, spans);
      };
      if (kHasMaster<T>) add(StateKind::master, master.data());
      for (std::size_t k = 0; k < kOptimizerStates; ++k)
        add(OptimizerStep::kStates[k], states_of_optimizer[k].data());
      const Status read = read_checkpoint(found_->path, format_of<T>(), spans);
      if (!read) return read;
      weights.finish();
      if (kHasMaster<T>) master.finish();
      for (Filling<Wide<T>, T>& each : states_of_optimizer) each.finish();
    }
  }
  return Done{};
}

template <class T>
void Persistence<T>::remember(double loss) {
  losses_.push_back(loss);
  if (losses_.size() > kLossesKept) losses_.erase(losses_.begin());
}

template <class T>
CheckpointContents Persistence<T>::contents(std::int64_t steps) const {
  CheckpointContents out;
  out.run = identity();
  out.format = format_of<T>();
  out.progress.step = steps;
  out.progress.samples = steps * plan_.job.global_batch;
  out.progress.tokens = out.progress.samples * plan_.job.sequence;
  out.progress.seed = settings_.seed;
  out.progress.losses = losses_;
  return out;
}

template <class T>
Status Persistence<T>::write(int rank, int ranks, std::int64_t steps,
                             const std::vector<OptimizerState<T>*>& states, Processor<T>& processor,
                             const Agree& agree) const {
  return write_checkpoint(settings_.checkpoint_dir, contents(steps), own_spans(states),
                          group_of(rank, ranks, processor, agree), kCheckpointsKept);
}

/// Weights reach rank 0 through a checkpoint next to the folder, which is removed again.
template <class T>
Status Persistence<T>::export_weights(int rank, const std::vector<OptimizerState<T>*>& states,
                                      Processor<T>& processor, const Agree& agree,
                                      int ranks) const {
  const std::string beside = settings_.export_to + ".checkpoint";
  const Status written = write_checkpoint(beside, contents(0), own_spans(states),
                                          group_of(rank, ranks, processor, agree), 1);
  Status exported = Done{};
  if (written && rank == 0) exported = export_checkpoint(beside + "/step_0", settings_.export_to);
  const bool fine = agree(written.ok() && exported.ok());
  if (rank == 0) {
    std::error_code ignored;
    std::filesystem::remove_all(beside, ignored);
  }
  if (!written) return written;
  if (!exported) return exported;
  if (!fine) return environment_error(settings_.export_to, "another rank could not write it");
  return Done{};
}

template class Persistence<double>;
template class Persistence<float>;
template class Persistence<Bfloat16>;

}  // namespace echelon
