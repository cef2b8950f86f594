#include "runtime/cuda/comm/cuda_world.hpp"

#include <fmt/format.h>
#include <nccl.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "core/base/expects.hpp"
#include "runtime/comm/local_ranks.hpp"
#include "runtime/cuda/comm/communicators.hpp"
#include "runtime/cuda/device/checks.hpp"
#include "runtime/cuda/device/resources.hpp"

namespace echelon::cuda {
namespace {

std::size_t index_of(GroupRole role) { return static_cast<std::size_t>(role); }

/// The group of a rank, and its place there.
std::pair<const Group*, int> place_of(const std::vector<Group>& groups, int rank) {
  for (const Group& group : groups) {
    const auto found = std::find(group.ranks.begin(), group.ranks.end(), rank);
    if (found != group.ranks.end()) {
      return {&group, static_cast<int>(found - group.ranks.begin())};
    }
  }
  return {nullptr, 0};
}

/// A process that fails aborts its GPU work first and then reports the reason to the others.
constexpr Seconds kPeerReportWait{3};
bool is_elsewhere(const World& host) {
  return static_cast<int>(host.local_ranks().size()) < host.ranks();
}

/// Exchange around the ring of a pipeline, without a circular wait.
void ring_exchange(Communicator& comm, int step, void* data, std::int64_t count) {
  const int n = comm.size();
  const int to = (comm.rank() + n + step) % n;
  const int from = (comm.rank() + n - step) % n;
  if (comm.rank() % 2 == 0) comm.send(data, count, Element::bf16, to);
  comm.receive(data, count, Element::bf16, from);
  if (comm.rank() % 2 != 0) comm.send(data, count, Element::bf16, to);
}

/// The calls of a step in the role, with as many bytes. `ring`: of context parallelism.
void use_once(Communicator& comm, GroupRole which, bool ring, void* data, std::int64_t bytes) {
  if (which == GroupRole::forward || which == GroupRole::backward) {
    return ring_exchange(comm, which == GroupRole::forward ? 1 : -1, data,
                         bytes / bytes_of(Element::bf16));
  }
  // Of what the first half holds. NCCL connects the members for sends and receives apart from its
  // collectives, when a part that is not empty is first sent: now, not within a step.
  if (which == GroupRole::cp || which == GroupRole::ep) {
    const int members = comm.size();
    const std::int64_t part = bytes / 2 / bytes_of(Element::bf16) / members;
    auto* const out = static_cast<std::byte*>(data) + part * members * bytes_of(Element::bf16);
    if (ring && which == GroupRole::cp) {
      const RingCounts counts(comm.rank(), members, part);
      comm.all_to_all(data, counts.to, out, counts.from, Element::bf16);
    } else {
      const std::vector<std::int64_t> parts(static_cast<std::size_t>(members), part);
      comm.all_to_all(data, parts, out, parts, Element::bf16);
    }
    if (which == GroupRole::cp) return;
  }
  for (const Element element : {Element::bf16, Element::f32}) {
    const std::int64_t count = bytes / bytes_of(element);
    const std::int64_t part = count / comm.size();
    auto* const mine = static_cast<std::byte*>(data) + comm.rank() * part * bytes_of(element);
    comm.all_reduce(data, count, element, Reduction::sum);
    comm.reduce_scatter(data, mine, part, element);
    comm.all_gather(mine, data, part, element);
    if (which == GroupRole::tp) comm.broadcast(data, count, element, 0);
  }
}

}  // namespace

Queue queue_of(GroupRole role) {
  switch (role) {
    case GroupRole::tp:
    case GroupRole::kv_replicas:
    case GroupRole::ep:
    case GroupRole::cp:
    case GroupRole::dp_compute:
    case GroupRole::shard_compute:
    case GroupRole::replica_compute: return Queue::compute;
    case GroupRole::dp_reduce:
    case GroupRole::shard_reduce:
    case GroupRole::replica_reduce:
    case GroupRole::expert_shard_reduce:
    case GroupRole::expert_replica_reduce:
    case GroupRole::tied:
    case GroupRole::norm: return Queue::reduce;
    case GroupRole::dp_gather:
    case GroupRole::shard_gather:
    case GroupRole::replica_gather:
    case GroupRole::expert_dp_gather:
    case GroupRole::expert_shard_gather:
    case GroupRole::expert_replica_gather: return Queue::gather;
    case GroupRole::forward: return Queue::p2p_forward;
    case GroupRole::backward: return Queue::p2p_backward;
    case GroupRole::control: break;
  }
  return Queue::host;
}

/// Gradients in fp32 of all parameters that a stage may hold, its layers' and an embedding's, and
/// the activations of a microbatch in bf16.
CudaWorldOptions world_options_of(const PlanFile& plan) {
  constexpr std::int64_t kLargest = 256 << 20;
  const ModelSpec& model = plan.model;
  const std::int64_t ends = model.embedding_parameters() + model.head_parameters();
  const std::int64_t of_stage =
      (model.parameters() / plan.plan.pp + ends) / plan.plan.tp * bytes_of(Element::f32);
  const std::int64_t activations = std::int64_t{plan.plan.microbatch} * plan.job.sequence *
                                   model.hidden * bytes_of(Element::bf16);
  return {.warm_up_bytes = std::min(kLargest, std::max(of_stage, activations))};
}

bool is_beside(GroupRole role) {
  return role == GroupRole::tp || role == GroupRole::kv_replicas || role == GroupRole::cp ||
         role == GroupRole::ep;
}

namespace {

/// The role of which a role's groups are split off, so that all members of that one's groups take
/// part: the role's groups divide them. Nothing: of the communicator of all ranks that is for this
/// alone.
///
/// NCCL executes the calls of all communicators that share resources one after the other, and a
/// communicator shares them with all that are split off it or with none. So these are of one
/// stream, where that costs nothing. Sources: ncclLaunchPrepare in NCCL's src/enqueue.cc;
/// ncclCommInitChildComm in src/init.cc, which reads the parent's splitShare.
std::optional<GroupRole> parent_of(GroupRole role) {
  if (role == GroupRole::kv_replicas) return GroupRole::tp;
  if (role != GroupRole::norm && queue_of(role) == queue_of(GroupRole::norm))
    return GroupRole::norm;
  return {};
}
bool has_children(GroupRole role) { return role == GroupRole::norm || role == GroupRole::tp; }

/// Collectives of data-parallel ranks run beside the kernels of the compute queue, and take
/// multiprocessors from them: at most so many. Half of NCCL's own limit on Hopper (32); not
/// measured. NCCL_MAX_CTAS overrides it.
constexpr int kMaxCtas = 16;
bool is_data_parallel(GroupRole role) {
  return queue_of(role) == Queue::reduce || queue_of(role) == Queue::gather;
}

}  // namespace

/// By rank and role, of the first members of groups.
struct CudaWorld::Ids {
  std::vector<NcclId> all;
  [[nodiscard]] static std::size_t place(int rank, std::size_t role) {
    return static_cast<std::size_t>(rank) * kGroupRoles + role;
  }
};

CudaWorld::CudaWorld(RunThreads& run_threads, std::unique_ptr<World> host, const ParallelPlan& plan,
                     const ModelSpec& model, const Gpus& gpus, const StreamOf& stream_of,
                     const CudaWorldOptions& options)
    : run_threads_(run_threads),
      host_(std::move(host)),
      gpus_(gpus),
      stream_of_(stream_of),
      ring_(plan.cp_comm == CpComm::ring),
      nccl_use_(chosen_nccl_use()),
      nccl_(run_threads, is_elsewhere(*host_) ? kPeerReportWait : Seconds{}, Seconds{10},
            nccl_use_) {
  for (std::size_t role = 0; role < index_of(GroupRole::control); ++role) {
    const auto which = static_cast<GroupRole>(role);
    if (is_used(which, plan)) groups_[role] = groups_of(which, plan, model);
  }
  for (const int rank : local_ranks()) {
    ends_[rank];
    roots_[rank];
    taken_[rank];
  }
  make_solo_and_shared();
  if (gpus_.shared || ranks() == 1) return;
  std::map<int, std::optional<DeviceBuffer>> scratch;
  for (const int rank : local_ranks()) scratch[rank];
  try {
    on_local_ranks(run_threads_, *this, [&](int rank) {
      use_device(gpus_.device.at(rank));
      const Bytes before = memory_of_device().free;
      join(rank, exchange_ids(rank));
      if (options.warm_up_bytes > 0) {
        std::optional<DeviceBuffer>& memory = scratch.at(rank);
        memory.emplace(DeviceBuffer::required(options.warm_up_bytes, DeviceBuffer::Where::device,
                                              "a warm-up of NCCL"));
        clear(*memory, options.warm_up_bytes, stream_of_(rank, GroupRole::dp_compute));
        // No thread allocates while a GPU waits for others: CUDA might wait for that GPU.
        host_->at(rank, GroupRole::control).barrier();
        warm_up(rank, memory->as<void>(), options.warm_up_bytes);
        memory.reset();
      }
      taken_.at(rank) = before - memory_of_device().free;
    });
  } catch (...) {
    abort_all();  // or the scratch memory could not be freed
    throw;
  }
}

CudaWorld::~CudaWorld() {
  if (run_threads_.stopping()) abort_all();
}

/// Communicators that this thread can create alone.
void CudaWorld::make_solo_and_shared() {
  for (std::size_t role = 0; role < index_of(GroupRole::control); ++role) {
    const auto which = static_cast<GroupRole>(role);
    for (const Group& group : groups_[role]) {
      const bool here = ends_.contains(group.rank(0));
      if (group.size() == 1 && here) {
        ends_.at(group.rank(0))[role] = solo_communicator(stream_of_(group.rank(0), which));
      }
      if (group.size() == 1 || !gpus_.shared) continue;
      use_device(gpus_.device.at(group.rank(0)));
      std::vector<Stream> streams;
      for (const int rank : group.ranks) streams.push_back(stream_of_(rank, which));
      auto ends = loopback_communicators(run_threads_, group, streams);
      for (int member = 0; member < group.size(); ++member) {
        ends_.at(group.rank(member))[role] = std::move(ends[static_cast<std::size_t>(member)]);
      }
    }
  }
}

/// The first member of a group creates its identifier and sends it to all.
CudaWorld::Ids CudaWorld::exchange_ids(int rank) {
  std::vector<NcclId> own(kGroupRoles);
  for (std::size_t role = 0; role < index_of(GroupRole::control); ++role) {
    for (const Group& group : groups_[role]) {
      const bool splits = nccl_use_.split && static_cast<GroupRole>(role) != GroupRole::norm;
      if (group.size() > 1 && group.rank(0) == rank && !splits) own[role] = new_nccl_id();
    }
  }
  Ids ids;
  ids.all.resize(static_cast<std::size_t>(ranks()) * kGroupRoles);
  constexpr std::int64_t kNumbers = kGroupRoles * static_cast<std::int64_t>(NcclId{}.size());
  host_->at(rank, GroupRole::control)
      .all_gather(own.data(), ids.all.data(), kNumbers, Element::i32);
  return ids;
}

/// Roles in the same order on all ranks, so that no two wait for each other in different roles;
/// first those off which others are split.
void CudaWorld::join(int rank, const Ids& ids) {
  if (nccl_use_.split) {
    Group all = groups_[index_of(GroupRole::norm)].front();
    all.name = "all (split)";
    const NcclId& id = ids.all[Ids::place(all.rank(0), index_of(GroupRole::norm))];
    roots_.at(rank) = nccl_.join(all, rank, id, stream_of_(rank, GroupRole::norm));
  }
  join_role(rank, GroupRole::norm, ids);
  for (std::size_t role = 0; role < index_of(GroupRole::control); ++role) {
    const auto which = static_cast<GroupRole>(role);
    if (which != GroupRole::norm) join_role(rank, which, ids);
  }
}

void CudaWorld::join_role(int rank, GroupRole role, const Ids& ids) {
  const std::vector<Group>& groups = groups_[index_of(role)];
  if (std::all_of(groups.begin(), groups.end(), [](const Group& g) { return g.size() == 1; }))
    return;
  const auto [group, member] = place_of(groups, rank);
  const bool alone = group->size() == 1;
  const NcclLimits limits{.max_ctas = is_data_parallel(role) ? kMaxCtas : 0,
                          .shares = nccl_use_.split && has_children(role)};
  std::unique_ptr<Communicator>& end = ends_.at(rank)[index_of(role)];
  const Stream stream = stream_of_(rank, role);
  if (!nccl_use_.split) {
    if (alone) return;
    end = nccl_.join(*group, member, ids.all[Ids::place(group->rank(0), index_of(role))], stream,
                     limits);
    return;
  }
  const std::optional<GroupRole> from = parent_of(role);
  Communicator& parent = from ? at(rank, *from) : *roots_.at(rank);
  if (parent.size() == 1) return;  // of a group of one, which has no communicator
  const int number = static_cast<int>(group - groups.data());
  std::unique_ptr<Communicator> made =
      nccl_.split(parent, alone ? nullptr : group, number, member, stream, limits);
  if (made != nullptr) end = std::move(made);
}

/// Small calls, medium and large ones, for which NCCL may take other algorithms.
void CudaWorld::warm_up(int rank, void* scratch, std::int64_t bytes) {
  for (std::size_t role = 0; role < index_of(GroupRole::control); ++role) {
    const auto which = static_cast<GroupRole>(role);
    const std::unique_ptr<Communicator>& end = ends_.at(rank)[role];
    if (end == nullptr || end->size() == 1) continue;
    constexpr std::int64_t kSmall = 4096;
    constexpr std::int64_t kMedium = 4 << 20;
    for (const std::int64_t size : {std::min(kSmall, bytes), std::min(kMedium, bytes), bytes}) {
      use_once(*end, which, ring_, scratch, size);
    }
    wait_for(rank, which);
  }
}

void CudaWorld::wait_for(int rank, GroupRole role) {
  const Stream stream = stream_of_(rank, role);
  const auto is_over = [&] {
    check(rank);
    return is_idle(stream);
  };
  run_threads_.poll(is_over, [&] {
    return fmt::format("the first use of '{}' by rank {}", name_of(role), rank);
  });
}

Communicator& CudaWorld::at(int rank, GroupRole role) {
  if (role == GroupRole::control) return host_->at(rank, role);
  const std::unique_ptr<Communicator>& end = ends_.at(rank)[index_of(role)];
  EXPECTS(end != nullptr, "a role that the plan uses");
  return *end;
}

std::string CudaWorld::transport() const {
  if (ranks() == 1) return "none";
  if (gpus_.shared) return "memory of one GPU";
  int version = 0;
  static_cast<void>(ncclGetVersion(&version));
  // NCCL_VERSION() of nccl.h, since 2.9.
  return fmt::format("nccl {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace echelon::cuda
