#include "runtime/training/run_checkpoints.hpp"

#include <fmt/format.h>

#include "runtime/comm/exchange.hpp"
#include "runtime/threads/run_threads.hpp"

namespace echelon {

template <class T>
RunCheckpoints<T>::RunCheckpoints(const PlanFile& plan, const RunSettings& settings,
                                  const Disk& disk, const Notify& notify, Backend<T>& backend)
    : settings_(settings), notify_(notify), backend_(backend), persistence_(plan, settings, disk) {}

template <class T>
std::vector<std::string> RunCheckpoints<T>::exchanged(int rank, const std::string& own) {
  return exchange(backend_.world().at(rank, GroupRole::control), own);
}

/// The processes of the run: one, with all ranks, or one for each rank.
template <class T>
CheckpointGroup RunCheckpoints<T>::processes() {
  World& world = backend_.world();
  const int rank = world.local_ranks().front();
  if (static_cast<int>(world.local_ranks().size()) == world.ranks()) return {};
  CheckpointGroup group;
  group.member = rank;
  group.members = world.ranks();
  group.exchange = [this, rank](const std::string& own) { return exchanged(rank, own); };
  return group;
}

template <class T>
Result<StartPoint> RunCheckpoints<T>::find() {
  const LongWait patient(persistence_.longest_wait());
  return persistence_.find(processes(), notify_);
}

template <class T>
Status RunCheckpoints<T>::fill(TrainingDevice<T>& device) {
  const LongWait patient(persistence_.longest_wait());
  Status filled = Done{};
  for (const int rank : backend_.world().local_ranks()) {
    const std::vector<OptimizerState<T>*> states = device.states(rank);
    if (filled) filled = persistence_.fill(states, backend_.at(rank));
    persistence_.reserve(rank, backend_.world().ranks(), states);
  }
  return agreed(processes(), filled);
}

template <class T>
Status RunCheckpoints<T>::finish_again() {
  const LongWait patient(persistence_.longest_wait());
  const CheckpointGroup together = processes();
  return agreed(together, together.leads() ? persistence_.export_found() : Status(Done{}));
}

/// All ranks have ended the step: they wait for each other's persistence alone.
template <class T>
void RunCheckpoints<T>::after_step(int rank, std::int64_t done, bool due, bool last,
                                   TrainingDevice<T>& device) {
  if (settings_.checkpoint_dir.empty()) return;
  const LongWait patient(persistence_.longest_wait());
  const Result<std::vector<std::int64_t>> complete = persistence_.after_step(
      rank, backend_.world().ranks(), done, due, last, device.states(rank), backend_.at(rank),
      [&](const std::string& own) { return exchanged(rank, own); });
  if (!complete) throw RunFailure(complete.error());
  if (rank != 0) return;
  for (const std::int64_t step : *complete) {
    notify_({.kind = RunEvent::Kind::checkpoint,
             .step = {},
             .of = 0,
             .text = fmt::format("checkpoint of step {} in {}", step, settings_.checkpoint_dir)});
  }
}

template <class T>
void RunCheckpoints<T>::export_weights(int rank, TrainingDevice<T>& device) {
  if (settings_.export_to.empty()) return;
  const LongWait patient(persistence_.longest_wait());
  const Status written = persistence_.export_weights(
      rank, backend_.world().ranks(), device.states(rank), backend_.at(rank),
      [&](const std::string& own) { return exchanged(rank, own); });
  if (!written) throw RunFailure(written.error());
}

template class RunCheckpoints<double>;
template class RunCheckpoints<float>;
template class RunCheckpoints<Bfloat16>;

}  // namespace echelon
