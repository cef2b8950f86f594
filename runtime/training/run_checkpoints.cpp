#include "runtime/training/run_checkpoints.hpp"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <sstream>

#include "runtime/comm/exchange.hpp"
#include "runtime/comm/local_ranks.hpp"
#include "runtime/threads/clock.hpp"
#include "runtime/threads/run_threads.hpp"

namespace echelon {

template <class T>
RunCheckpoints<T>::RunCheckpoints(RunThreads& run_threads, const PlanFile& plan,
                                  const RunSettings& settings, const Disk& disk,
                                  const Notify& notify, Backend<T>& backend, RunHistory& history)
    : run_threads_(run_threads),
      plan_(plan),
      settings_(settings),
      notify_(notify),
      backend_(backend),
      history_(history),
      persistence_(plan, settings, disk) {}

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

/// Step 1: all ranks at once, since they share what they read. Step 2: do all agree? Step 3: what
/// was read.
template <class T>
Result<std::string> RunCheckpoints<T>::fill(TrainingDevice<T>& device, int threads) {
  World& world = backend_.host_world();
  std::mutex mutex;
  std::map<int, Status> filled;  // by rank
  on_local_ranks(run_threads_, world, [&](int rank) {
    omp_set_num_threads(threads);  // of this thread alone
    const LongWait patient(persistence_.longest_wait());
    // Roles of which no step makes use.
    const GroupRole own = plan_.plan.zero > 0 ? GroupRole::replica_gather : GroupRole::dp_gather;
    const Replicas replicas{world.at(rank, GroupRole::dp_gather), world.at(rank, own),
                            world.at(rank, GroupRole::expert_dp_gather),
                            world.at(rank, GroupRole::expert_replica_gather)};
    const Status done = persistence_.fill(device.states(rank), backend_.at(rank), replicas);
    const std::lock_guard lock(mutex);
    filled.emplace(rank, done);
  });
  Status fine = Done{};
  for (const auto& [rank, done] : filled) {
    if (fine) fine = done;
    persistence_.reserve(rank, world.ranks(), device.states(rank));
  }
  const LongWait patient(persistence_.longest_wait());
  if (const Status all = agreed(processes(), fine); !all) return all.error();
  return read_by_all();
}

template <class T>
std::string RunCheckpoints<T>::read_by_all() {
  const ReadBytes own = persistence_.bytes_read();
  std::int64_t state = 0;
  std::int64_t most = 0;
  std::int64_t hashed = 0;
  const CheckpointGroup all = processes();
  for (const std::string& each : all.exchange(fmt::format("{} {}", own.state, own.hashed))) {
    std::istringstream numbers(each);
    std::int64_t state_of_one = 0;
    std::int64_t hashed_of_one = 0;
    numbers >> state_of_one >> hashed_of_one;
    state += state_of_one;
    most = std::max(most, state_of_one);
    hashed += hashed_of_one;
  }
  if (state == 0) return "";
  std::string text = fmt::format("{} bytes", state);
  if (all.members > 1)
    text += fmt::format(", at most {} by one of {} processes", most, all.members);
  if (hashed > 0) text += fmt::format("; {} bytes to check the hashes", hashed);
  return text;
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
  const Seconds begin = steady_now();
  const Result<std::vector<std::int64_t>> complete = persistence_.after_step(
      rank, backend_.world().ranks(), done, due, last, device.states(rank), backend_.at(rank),
      [&](const std::string& own) { return exchanged(rank, own); });
  if (!complete) throw RunFailure(complete.error());
  if (rank != 0) return;
  if (due) begun_[done] = begin;
  history_.stalled(steady_now() - begin);
  tell(*complete);
}

/// Rank 0, of the checkpoints that have just become complete.
template <class T>
void RunCheckpoints<T>::tell(const std::vector<std::int64_t>& complete) {
  for (const std::int64_t step : complete) {
    history_.wrote(persistence_.checkpoint_size(), steady_now() - begun_.at(step));
    begun_.erase(step);
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
