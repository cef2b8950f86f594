#include "runtime/training/persistence.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "core/base/content_hash.hpp"
#include "runtime/io/weights/checkpoint_layout.hpp"
#include "runtime/io/weights/huggingface.hpp"
#include "runtime/training/disk_space.hpp"
#include "runtime/training/state_format.hpp"

namespace echelon {
namespace {

constexpr std::size_t kLossesKept = 20;

Seconds longest_wait_of(const RunSettings& settings, Bytes checkpoint) {
  constexpr Seconds kLeast{60};
  constexpr BytesPerSecond kSlowDisk{20e6};  // of all ranks together: a worn USB disk
  return std::max(kLeast, settings.timeout.value_or(kLeast)) + checkpoint / kSlowDisk;
}

/// The states this rank owns: of replicated states only those of the first rank.
template <class T>
std::vector<StateSpan> own_spans(const std::vector<OptimizerState<T>*>& chunks) {
  constexpr Element kWide = Number<Wide<T>>::kElement;
  std::vector<StateSpan> spans;
  for (OptimizerState<T>* states : chunks) {
    for (FlatState<T>& r : states->flat_states()) {
      if (states->groups_of(r).replica != 0) continue;
      const auto add = [&](StateKind kind, void* data, Element element) {
        append_spans(*r.layout, kind, r.begin, r.end, data, element, spans);
      };
      add(StateKind::weight, r.own_weights, Number<T>::kElement);
      if (r.layout->frozen) continue;
      if (kHasMaster<T>) add(StateKind::master, r.master, kWide);
      for (std::size_t k = 0; k < kOptimizerStates; ++k)
        add(OptimizerStep::kStates[k], r.states[k], kWide);
    }
  }
  return spans;
}

template <class T>
CheckpointGroup group_of(int rank, int ranks, Processor<T>& processor,
                         const typename Persistence<T>::Exchange& exchange) {
  CheckpointGroup group;
  group.member = rank;
  group.members = ranks;
  group.exchange = exchange;
  if (!processor.in_host_memory()) {
    group.read = [&](const void* from, void* host, std::int64_t bytes) {
      processor.read(from, host, bytes);
    };
  }
  return group;
}

}  // namespace

template <class T>
Persistence<T>::Persistence(const PlanFile& plan, const RunSettings& settings, const Disk& disk)
    : plan_(plan),
      settings_(settings),
      disk_(disk),
      checkpoint_size_(Bytes{
          static_cast<double>(checkpoint_bytes(plan.model, format_of<T>(), plan.job.adapters))}),
      longest_wait_(longest_wait_of(settings, checkpoint_size_)) {}

template <class T>
RunIdentity Persistence<T>::identity() const {
  const ParallelPlan& p = plan_.plan;
  RunIdentity run;
  run.model = plan_.model;
  run.plan = fmt::format("tp {}, pp {}, vpp {}, dp {}, microbatch {}, ZeRO {}", p.tp, p.pp, p.vpp,
                         p.dp, p.microbatch, p.zero);
  if (p.ep > 1) run.plan += fmt::format(", ep {}", p.ep);
  run.plan_hash = content_hash(plan_.program);
  run.adapters = plan_.job.adapters;
  if (run.adapters) run.lora_alpha = settings_.lora_alpha;
  run.data = settings_.data.empty() ? "synthetic" : settings_.data;
  return run;
}

/// Two runs that write the same checkpoint remove, and mix, each other's files. One whose `plan`
/// was killed ends after its step, with a checkpoint.
template <class T>
Status Persistence<T>::lock_folder(const Notify& notify) {
  constexpr Seconds kPatience{10};
  const std::string& folder = settings_.checkpoint_dir;
  std::error_code ignored;
  if (folder.empty()) return Done{};
  if (settings_.resume == Resume::yes && !std::filesystem::exists(folder, ignored)) return Done{};
  Result<FolderLock> lock = FolderLock::take(folder, kPatience, [&](const std::string& waits) {
    notify({.kind = RunEvent::Kind::note, .step = {}, .of = 0, .text = waits});
  });
  if (!lock) {
    Error error = lock.error();
    error.where = "--checkpoint-dir: " + error.where;
    return error;
  }
  lock_.emplace(*std::move(lock));
  return Done{};
}

/// A run that is not to resume needs a folder without checkpoints.
template <class T>
Status Persistence<T>::check_new_folder() const {
  if (settings_.checkpoint_dir.empty()) return Done{};
  const Result<std::vector<std::int64_t>> there = checkpoint_steps(settings_.checkpoint_dir);
  if (!there) return there.error();
  if (there->empty()) return Done{};
  return input_error("--checkpoint-dir",
                     fmt::format("{} holds checkpoints of an earlier run, the latest at step {}",
                                 settings_.checkpoint_dir, there->front()),
                     "an empty directory",
                     "--resume continues from there, --resume auto starts or continues");
}

template <class T>
Status Persistence<T>::resume(const CheckpointGroup& processes) {
  Result<std::optional<FoundCheckpoint>> found =
      find_checkpoint(settings_.checkpoint_dir, identity(), format_of<T>(), processes);
  if (!found) return found.error();
  if (!*found && settings_.resume == Resume::automatic) return Done{};
  if (!*found) {
    return input_error("--resume", "no checkpoint in " + settings_.checkpoint_dir,
                       "a directory with checkpoints of a run",
                       "omit --resume to start anew; --resume auto starts or continues");
  }
  found_ = **std::move(found);
  const Progress& progress = found_->contents.progress;
  if (progress.seed != settings_.seed) {
    return input_error("--seed", fmt::format("{}", settings_.seed),
                       fmt::format("{}, that of the checkpoint {}", progress.seed, found_->path));
  }
  losses_ = progress.losses;
  return Done{};
}

/// Step 1: the folder for this run alone. Step 2: the place to begin at. Step 3: initial weights.
/// Step 4: the space for what follows.
template <class T>
Result<StartPoint> Persistence<T>::find(const CheckpointGroup& processes, const Notify& notify) {
  Status fine = Done{};
  if (!settings_.export_to.empty()) {
    HuggingFaceNames names{};
    const Result<std::string> form = huggingface_config(plan_.model, Number<T>::kElement, names);
    if (!form) fine = form.error();
  }
  if (fine && processes.leads()) fine = lock_folder(notify);
  if (fine && settings_.resume == Resume::no && processes.leads()) fine = check_new_folder();
  if (const Status all = agreed(processes, fine); !all) return all.error();
  if (settings_.resume != Resume::no) {
    if (const Status resumed = resume(processes); !resumed) return resumed.error();
  }
  if (!settings_.init_from.empty() && !found_) {
    Result<HuggingFaceWeights> opened = HuggingFaceWeights::open(settings_.init_from, plan_.model);
    if (opened) {
      given_ = *std::move(opened);
    } else {
      Error error = opened.error();
      error.where = "--init-from: " + error.where;
      fine = error;
    }
  }
  start_ =
      start_point(settings_, plan_.job.global_batch, found_ ? &found_->contents.progress : nullptr);
  if (fine && processes.leads()) {
    const Result<std::vector<std::string>> notes =
        check_space(plan_, format_of<T>(), settings_, start_, disk_);
    if (!notes)
      fine = notes.error();
    else
      start_.notes.insert(start_.notes.end(), notes->begin(), notes->end());
  }
  if (const Status all = agreed(processes, fine); !all) return all.error();
  if (plan_.job.adapters && !found_ && !given_) {
    start_.notes.emplace_back(
        "the frozen weights under the adapters are random: --init-from DIR reads those of a model");
  }
  std::vector<std::string> notes;
  if (found_) {
    notes = found_->notes;
    notes.push_back(fmt::format("resuming from {} after {} steps", found_->path, start_.step));
  }
  notes.insert(notes.end(), start_.notes.begin(), start_.notes.end());
  start_.notes = notes;
  for (const std::string& note : notes)
    notify({.kind = RunEvent::Kind::note, .step = {}, .of = 0, .text = note});
  return start_;
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
  out.progress.samples = start_.samples(steps, plan_.job.global_batch);
  out.progress.global_batch = plan_.job.global_batch;
  out.progress.rate = start_.schedule;
  out.progress.tokens = out.progress.samples * plan_.job.sequence;
  out.progress.seed = settings_.seed;
  out.progress.losses = losses_;
  return out;
}

template <class T>
void Persistence<T>::reserve(int rank, int ranks, const std::vector<OptimizerState<T>*>& states) {
  if (!settings_.async_checkpoints || settings_.checkpoint_dir.empty()) return;
  async_[rank] =
      std::make_unique<AsyncCheckpoint>(settings_.checkpoint_dir, keep_of(settings_), disk_, rank,
                                        ranks, own_spans(states), format_of<T>());
}

template <class T>
Bytes Persistence<T>::reserved(int rank) const {
  const auto at = async_.find(rank);
  return at == async_.end() ? Bytes{} : at->second->copy();
}

template <class T>
Result<std::vector<std::int64_t>> Persistence<T>::after_step(
    int rank, int ranks, std::int64_t steps, bool due, bool last,
    const std::vector<OptimizerState<T>*>& states, Processor<T>& processor,
    const Exchange& exchange) {
  std::vector<std::int64_t> complete;
  const auto at = async_.find(rank);
  if (at == async_.end()) {
    if (!due) return complete;
    const Status written =
        write_checkpoint(settings_.checkpoint_dir, contents(steps), own_spans(states),
                         group_of<T>(rank, ranks, processor, exchange), keep_of(settings_), disk_);
    if (!written) return written.error();
    complete.push_back(steps);
    return complete;
  }
  AsyncCheckpoint& async = *at->second;
  const auto advance = [&](bool wait) -> Status {
    if (!async.in_flight()) return Done{};
    if (const Status done = async.advance(exchange, wait); !done) return done;
    if (!async.in_flight()) complete.push_back(async.step());
    return Done{};
  };
  if (const Status done = advance(due || last); !done) return done.error();
  if (due) {
    async.start(contents(steps), own_spans(states),
                group_of<T>(rank, ranks, processor, exchange).read);
    if (const Status done = last ? advance(true) : Status(Done{}); !done) return done.error();
  }
  return complete;
}

/// Weights reach rank 0 through a checkpoint next to the folder, which is removed again.
template <class T>
Status Persistence<T>::export_weights(int rank, int ranks,
                                      const std::vector<OptimizerState<T>*>& states,
                                      Processor<T>& processor, const Exchange& exchange) const {
  const std::string beside = settings_.export_to + ".checkpoint";
  const CheckpointGroup group = group_of<T>(rank, ranks, processor, exchange);
  Status done =
      write_checkpoint(beside, contents(0), own_spans(states), group, KeepPolicy{1, 0}, disk_);
  if (done && rank == 0) done = export_checkpoint(beside + "/step_0", settings_.export_to, disk_);
  done = agreed(group, done);
  if (rank == 0) {
    std::error_code ignored;
    std::filesystem::remove_all(beside, ignored);
  }
  return done;
}

template <class T>
Status Persistence<T>::export_found() const {
  if (settings_.export_to.empty() || !found_) return Done{};
  return export_checkpoint(found_->path, settings_.export_to, disk_);
}

template class Persistence<double>;
template class Persistence<float>;
template class Persistence<Bfloat16>;

}  // namespace echelon
