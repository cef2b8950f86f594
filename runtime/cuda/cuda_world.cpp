#include "runtime/cuda/cuda_world.hpp"

#include <fmt/format.h>
#include <nccl.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "core/base/expects.hpp"
#include "runtime/cuda/checks.hpp"
#include "runtime/cuda/communicators.hpp"
#include "runtime/cuda/local_ranks.hpp"
#include "runtime/cuda/resources.hpp"

namespace echelon::cuda {
namespace {

std::size_t index_of(Line line) { return static_cast<std::size_t>(line); }

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

/// A process that fails gives up its GPU first, and then tells the others why.
constexpr Seconds kHearsay{3};
bool is_elsewhere(const World& host) {
  return static_cast<int>(host.local_ranks().size()) < host.ranks();
}

/// Round the ring of a pipeline: nobody waits for who waits for it.
void pass_on(Communicator& line, int step, void* data, std::int64_t count) {
  const int n = line.size();
  const int to = (line.rank() + n + step) % n;
  const int from = (line.rank() + n - step) % n;
  if (line.rank() % 2 == 0) line.send(data, count, Element::bf16, to);
  line.receive(data, count, Element::bf16, from);
  if (line.rank() % 2 != 0) line.send(data, count, Element::bf16, to);
}

/// What a step does on the line, with as many bytes.
void use_once(Communicator& line, Line which, void* data, std::int64_t bytes) {
  if (which == Line::forward || which == Line::backward) {
    return pass_on(line, which == Line::forward ? 1 : -1, data, bytes / bytes_of(Element::bf16));
  }
  for (const Element element : {Element::bf16, Element::f32}) {
    const std::int64_t count = bytes / bytes_of(element);
    const std::int64_t part = count / line.size();
    auto* const mine = static_cast<std::byte*>(data) + line.rank() * part * bytes_of(element);
    line.all_reduce(data, count, element, Reduction::sum);
    line.reduce_scatter(data, mine, part, element);
    line.all_gather(mine, data, part, element);
  }
}

}  // namespace

Queue queue_of(Line line) {
  switch (line) {
    case Line::tp:
    case Line::kv_replicas:
    case Line::dp_compute:
    case Line::shard_compute:
    case Line::replica_compute: return Queue::compute;
    case Line::dp_reduce:
    case Line::shard_reduce:
    case Line::replica_reduce:
    case Line::tied:
    case Line::norm: return Queue::reduce;
    case Line::dp_gather:
    case Line::shard_gather:
    case Line::replica_gather: return Queue::gather;
    case Line::forward: return Queue::p2p_forward;
    case Line::backward: return Queue::p2p_backward;
    case Line::host: break;
  }
  return Queue::host;
}

/// By rank and line, of those that are a group's first.
struct CudaWorld::Ids {
  std::vector<NcclId> all;
  [[nodiscard]] static std::size_t place(int rank, std::size_t line) {
    return static_cast<std::size_t>(rank) * kLines + line;
  }
};

CudaWorld::CudaWorld(Crew& crew, std::unique_ptr<World> host, const ParallelPlan& plan,
                     const ModelSpec& model, const Gpus& gpus, const StreamOf& stream_of,
                     const CudaWorldOptions& options)
    : crew_(crew),
      host_(std::move(host)),
      gpus_(gpus),
      stream_of_(stream_of),
      nccl_(crew, is_elsewhere(*host_) ? kHearsay : Seconds{}) {
  for (std::size_t line = 0; line < index_of(Line::host); ++line) {
    const auto which = static_cast<Line>(line);
    if (is_used(which, plan)) groups_[line] = groups_of(which, plan, model);
  }
  for (const int rank : local_ranks()) {
    ends_[rank];
    taken_[rank];
  }
  make_solo_and_shared();
  if (gpus_.shared || ranks() == 1) return;
  std::map<int, std::optional<Room>> scratch;
  for (const int rank : local_ranks()) scratch[rank];
  try {
    on_local_ranks(crew_, *this, [&](int rank) {
      use_device(gpus_.device.at(rank));
      const Bytes before = memory_of_device().free;
      join(rank, exchange_ids(rank));
      if (options.warm_up_bytes > 0) {
        std::optional<Room>& memory = scratch.at(rank);
        memory.emplace(
            Room::demanded(options.warm_up_bytes, Room::Where::device, "a warm-up of NCCL"));
        clear(*memory, options.warm_up_bytes, stream_of_(rank, Queue::compute));
        // Nobody takes memory while a GPU waits for others: CUDA may wait for that GPU then.
        host_->at(rank, Line::host).barrier();
        warm_up(rank, memory->as<void>(), options.warm_up_bytes);
        memory.reset();
      }
      taken_.at(rank) = before - memory_of_device().free;
    });
  } catch (...) {
    abort_all();  // or the scratch memory could not be given back
    throw;
  }
}

CudaWorld::~CudaWorld() {
  if (crew_.stopping()) abort_all();
}

/// What needs nobody but this thread.
void CudaWorld::make_solo_and_shared() {
  for (std::size_t line = 0; line < index_of(Line::host); ++line) {
    const Queue queue = queue_of(static_cast<Line>(line));
    for (const Group& group : groups_[line]) {
      const bool here = ends_.contains(group.rank(0));
      if (group.size() == 1 && here) {
        ends_.at(group.rank(0))[line] = solo_communicator(stream_of_(group.rank(0), queue));
      }
      if (group.size() == 1 || !gpus_.shared) continue;
      use_device(gpus_.device.at(group.rank(0)));
      std::vector<Stream> streams;
      for (const int rank : group.ranks) streams.push_back(stream_of_(rank, queue));
      auto ends = loopback_communicators(crew_, group, streams);
      for (int member = 0; member < group.size(); ++member) {
        ends_.at(group.rank(member))[line] = std::move(ends[static_cast<std::size_t>(member)]);
      }
    }
  }
}

/// The first member of a group makes its identifier and tells it to everybody.
CudaWorld::Ids CudaWorld::exchange_ids(int rank) {
  std::vector<NcclId> own(kLines);
  for (std::size_t line = 0; line < index_of(Line::host); ++line) {
    for (const Group& group : groups_[line]) {
      if (group.size() > 1 && group.rank(0) == rank) own[line] = new_nccl_id();
    }
  }
  Ids ids;
  ids.all.resize(static_cast<std::size_t>(ranks()) * kLines);
  constexpr std::int64_t kNumbers = kLines * static_cast<std::int64_t>(NcclId{}.size());
  host_->at(rank, Line::host).all_gather(own.data(), ids.all.data(), kNumbers, Element::i32);
  return ids;
}

/// Lines in their order, so that nobody waits in one for who waits in another.
void CudaWorld::join(int rank, const Ids& ids) {
  for (std::size_t line = 0; line < index_of(Line::host); ++line) {
    const auto [group, member] = place_of(groups_[line], rank);
    if (group == nullptr || group->size() == 1) continue;
    ends_.at(rank)[line] = nccl_.join(*group, member, ids.all[Ids::place(group->rank(0), line)],
                                      stream_of_(rank, queue_of(static_cast<Line>(line))));
  }
}

/// Small calls and large ones, for which NCCL may take other algorithms.
void CudaWorld::warm_up(int rank, void* scratch, std::int64_t bytes) {
  for (std::size_t line = 0; line < index_of(Line::host); ++line) {
    const auto which = static_cast<Line>(line);
    const std::unique_ptr<Communicator>& end = ends_.at(rank)[line];
    if (end == nullptr || end->size() == 1) continue;
    constexpr std::int64_t kSmall = 4096;
    for (const std::int64_t size : {std::min(kSmall, bytes), bytes}) {
      use_once(*end, which, scratch, size);
    }
    wait_for(rank, which);
  }
}

void CudaWorld::wait_for(int rank, Line line) {
  const Stream stream = stream_of_(rank, queue_of(line));
  const auto is_over = [&] {
    check();
    return is_idle(stream);
  };
  crew_.poll(is_over,
             [&] { return fmt::format("the first use of '{}' by rank {}", name_of(line), rank); });
}

Communicator& CudaWorld::at(int rank, Line line) {
  if (line == Line::host) return host_->at(rank, line);
  const std::unique_ptr<Communicator>& end = ends_.at(rank)[index_of(line)];
  EXPECTS(end != nullptr, "a line that the plan uses");
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
