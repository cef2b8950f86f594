#include "runtime/cuda/comm/nccl.hpp"

#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>
#include <optional>
#include <thread>
#include <utility>

#include "runtime/comm/call_communicator.hpp"
#include "runtime/cuda/comm/nccl_shared_comm.hpp"
#include "runtime/cuda/device/checks.hpp"
#include "runtime/threads/clock.hpp"

namespace echelon::cuda {
namespace {

ncclDataType_t type_of(Element element) {
  switch (element) {
    case Element::f32: return ncclFloat32;
    case Element::f64: return ncclFloat64;
    case Element::bf16: return ncclBfloat16;
    case Element::i32: return ncclInt32;
  }
  return ncclFloat32;
}

/// False: not complete within the limit; it is abandoned.
bool is_over_within(Seconds limit, const std::function<void()>& work) {
  std::promise<void> promise;
  const std::future<void> over = promise.get_future();
  std::thread thread([work, done = std::move(promise)]() mutable {
    work();
    done.set_value();
  });
  const bool in_time =
      over.wait_for(std::chrono::duration<double>(limit.in(kSecond))) == std::future_status::ready;
  if (in_time) {
    thread.join();
  } else {
    thread.detach();
  }
  return in_time;
}

}  // namespace

class Nccl::End final : public CallCommunicator {
 public:
  End(std::shared_ptr<SharedComm> link, int rank, Stream stream)
      : link_(std::move(link)), rank_(rank), stream_(stream) {}
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return link_->group().size(); }
  [[nodiscard]] Seconds transfer_began() const override { return {}; }
  [[nodiscard]] SharedComm& link() const { return *link_; }

 private:
  void carry_out(const Call& call, const void* in, void* out, const PartCounts& parts) override;
  [[nodiscard]] ncclResult_t all_to_all(const Call& call, const void* in, void* out,
                                        const PartCounts& parts, ncclComm_t comm) const;

  std::shared_ptr<SharedComm> link_;
  int rank_;
  Stream stream_;
};

/// NCCL has it as a group of messages, which run concurrently; those between two ranks match in
/// their order, and those of no elements are left out on both sides.
ncclResult_t Nccl::End::all_to_all(const Call& call, const void* in, void* out,
                                   const PartCounts& parts, ncclComm_t comm) const {
  const ncclDataType_t type = type_of(call.element);
  const std::int64_t width = bytes_of(call.element);
  ncclResult_t result = ncclGroupStart();
  for (std::size_t part = 0; part < parts.to.size() && !is_error(result); ++part) {
    const int member = static_cast<int>(part) / call.other;
    const auto sent = static_cast<std::size_t>(parts.to[part]);
    const auto got = static_cast<std::size_t>(parts.from[part]);
    if (sent > 0) {
      const auto* const from = static_cast<const std::byte*>(in) + parts.to_first[part] * width;
      result = ncclSend(from, sent, type, member, comm, stream_);
    }
    if (got > 0 && !is_error(result)) {
      auto* const to = static_cast<std::byte*>(out) + parts.from_first[part] * width;
      result = ncclRecv(to, got, type, member, comm, stream_);
    }
  }
  const ncclResult_t ended = ncclGroupEnd();
  return is_error(result) ? result : ended;
}

void Nccl::End::carry_out(const Call& call, const void* in, void* out, const PartCounts& parts) {
  const bool empty = call.operation == Operation::all_to_all
                         ? parts.empty()
                         : call.count == 0 && call.operation != Operation::barrier;
  if (empty) return;
  const auto count = static_cast<std::size_t>(call.count);
  const ncclDataType_t type = type_of(call.element);
  const ncclRedOp_t how = call.how == Reduction::sum ? ncclSum : ncclMax;
  link_->enqueue(call, [&](ncclComm_t comm) {
    switch (call.operation) {
      case Operation::all_reduce: return ncclAllReduce(in, out, count, type, how, comm, stream_);
      case Operation::reduce_scatter:
        return ncclReduceScatter(in, out, count, type, how, comm, stream_);
      case Operation::all_gather: return ncclAllGather(in, out, count, type, comm, stream_);
      case Operation::all_to_all: return all_to_all(call, in, out, parts, comm);
      case Operation::broadcast:
        return ncclBroadcast(in, out, count, type, call.other, comm, stream_);
      case Operation::send: return ncclSend(in, count, type, call.other, comm, stream_);
      case Operation::receive: return ncclRecv(out, count, type, call.other, comm, stream_);
      case Operation::barrier:  // NCCL has none
        return ncclAllReduce(link_->barrier_word(), link_->barrier_word(), 1, ncclInt32, ncclMax,
                             comm, stream_);
    }
    return ncclInvalidArgument;
  });
}

NcclId new_nccl_id() {
  ncclUniqueId unique;
  const ncclResult_t result = ncclGetUniqueId(&unique);
  if (is_error(result)) throw nccl_failure(result, nullptr, "a new group");
  NcclId id;
  static_assert(sizeof unique == sizeof id);
  std::memcpy(id.data(), &unique, sizeof id);
  return id;
}

NcclUse chosen_nccl_use() {
  NcclUse use;
  use.blocking = chosen_by("ECHELON_NCCL_BLOCKING", {"0", "1"}) == "1";
  use.split = NCCL_VERSION_CODE >= NCCL_VERSION(2, 18, 0) &&
              chosen_by("ECHELON_NCCL_SPLIT", {"0", "1"}) != "0";
  return use;
}

Nccl::Nccl(RunThreads& run_threads, Seconds peer_report_wait, Seconds limit, NcclUse use)
    : run_threads_(run_threads), peer_report_wait_(peer_report_wait), limit_(limit), use_(use) {
  if (use_.blocking) {
    watching_.emplace([this](const std::stop_token& end) { watch(end); });
  }
}

Nccl::~Nccl() {
  watching_.reset();
  if (!run_threads_.stopping() && (use_.blocking ? finish_blocking() : finish())) return;
  abort_all();
}

std::shared_ptr<Nccl::SharedComm> Nccl::new_link(const Group& group, int member) {
  const auto link = std::make_shared<SharedComm>(run_threads_, peer_report_wait_, group,
                                                 group.rank(member), use_.blocking);
  const std::lock_guard lock(mutex_);
  if (aborted_) {
    throw RunFailure(RunFailure::Kind::stopped, describe(group) + ": NCCL was given up");
  }
  links_.push_back(link);
  return link;
}

std::unique_ptr<Communicator> Nccl::join(const Group& group, int member, const NcclId& id,
                                         Stream stream, const NcclLimits& limits) {
  const auto link = new_link(group, member);
  link->join(member, id, limits);
  return std::make_unique<End>(link, member, stream);
}

std::unique_ptr<Communicator> Nccl::split(Communicator& parent, const Group* group, int number,
                                          int member, Stream stream, const NcclLimits& limits) {
  const auto link = group == nullptr ? nullptr : new_link(*group, member);
  SharedComm::split(dynamic_cast<End&>(parent).link(), link, number, member, limits);
  return link == nullptr ? nullptr : std::make_unique<End>(link, member, stream);
}

std::vector<std::shared_ptr<Nccl::SharedComm>> Nccl::links() {
  const std::lock_guard lock(mutex_);
  return links_;
}

void Nccl::check(int rank) {
  for (const auto& link : links()) {
    if (link->rank() == rank) link->check();
  }
}

/// Ends calls that block: those that last too long stop the run, and a run that stops lets no call
/// go on.
void Nccl::watch(const std::stop_token& end) {
  constexpr auto kLook = std::chrono::milliseconds(5);
  while (!end.stop_requested()) {
    std::this_thread::sleep_for(kLook);
    if (run_threads_.stopping()) {
      await_calls(Seconds{1});
      return abort_all();
    }
    const std::optional<Seconds> deadline = run_threads_.deadline();
    for (const auto& link : links()) {
      const auto running = link->running();
      if (!running || !deadline || steady_now() - running->since < *deadline) continue;
      run_threads_.hang(": " + running->what + " does not return from NCCL");
    }
  }
}

/// A communicator that is aborted in a call that would have returned may be freed under it.
void Nccl::await_calls(Seconds limit) {
  const Seconds start = steady_now();
  const auto all = links();
  while (steady_now() - start < limit &&
         std::any_of(all.begin(), all.end(), [](const auto& link) { return link->running(); }))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

/// All finalize before any is waited for: members of one process would wait for each other.
bool Nccl::finish() {
  const auto all = links();
  for (const auto& link : all) {
    if (!link->finalize()) return false;
  }
  const Seconds start = steady_now();
  for (const auto& link : all) {
    for (;;) {
      const ncclResult_t state = link->state();
      if (is_error(state) || steady_now() - start > limit_) return false;
      if (state == ncclSuccess) break;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
  for (const auto& link : all) static_cast<void>(ncclCommDestroy(link->release()));
  return true;
}

/// Destroying a communicator waits for its work.
bool Nccl::finish_blocking() {
  std::vector<ncclComm_t> all;
  for (const auto& link : links()) {
    if (ncclComm_t const comm = link->release(); comm != nullptr) all.push_back(comm);
  }
  return is_over_within(limit_, [all, links = links()] {
    for (ncclComm_t const comm : all) static_cast<void>(ncclCommDestroy(comm));
  });
}

/// As a group: aborting one waits for the device, on which a kernel of another may wait.
void Nccl::abort_all() {
  std::vector<ncclComm_t> all;
  {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
  }
  const auto links = this->links();
  for (const auto& link : links) {
    if (ncclComm_t const comm = link->release(); comm != nullptr) all.push_back(comm);
  }
  if (all.empty()) return;
  static_cast<void>(is_over_within(limit_, [all, links] {
    static_cast<void>(ncclGroupStart());
    for (ncclComm_t const comm : all) static_cast<void>(ncclCommAbort(comm));
    static_cast<void>(ncclGroupEnd());
  }));
}

}  // namespace echelon::cuda
