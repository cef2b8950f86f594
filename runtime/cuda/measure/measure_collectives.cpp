// Collectives between the GPUs of this computer, through the communicators of runs: a thread per
// GPU.
#include <fmt/format.h>
#include <nccl.h>

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <numeric>
#include <string_view>
#include <utility>

#include "runtime/comm/thread_communicator.hpp"
#include "runtime/cuda/comm/nccl.hpp"
#include "runtime/cuda/device/checks.hpp"
#include "runtime/cuda/measure/measure_parts.hpp"
#include "runtime/measure/parts.hpp"
#include "runtime/threads/clock.hpp"
#include "runtime/threads/failure.hpp"
#include "runtime/threads/run_threads.hpp"

namespace echelon::cuda {
namespace {

constexpr std::array<const char*, 3> kAmongAll = {"all_reduce", "all_gather", "reduce_scatter"};

/// A GPU's member of a group, with its own stream and block of memory.
class MeasuredEnd {
 public:
  MeasuredEnd(RunThreads& run_threads, Nccl& nccl, const Group& group, int device, const NcclId& id,
              Communicator& others, std::int64_t bytes)
      : run_threads_(run_threads), nccl_(nccl), rank_(device) {
    use_device(device);
    stream_ = new_stream();
    const Bytes before = memory_of_device().used;
    communicator_ = nccl.join(group, device, id, stream_.get());
    buffer_.emplace(DeviceBuffer::required(bytes, DeviceBuffer::Where::device, "a collective"));
    fill(*buffer_, bytes / bytes_of(Element::bf16), false, stream_.get());
    timer_.emplace();
    others.barrier();  // no thread allocates while a GPU waits for others: CUDA might wait for it
    // The first calls create channels and buffers: those that a run's first use makes.
    for (const char* what : kAmongAll) {
      for (const std::int64_t size : {std::min<std::int64_t>(bytes, 4096), bytes})
        static_cast<void>(time(what, size, 0, 1));
    }
    held_ = memory_of_device().used - before - Bytes{static_cast<double>(bytes)};
    others.barrier();  // an exchange needs memory of the receivers
    const Bytes collectives = memory_of_device().used;
    static_cast<void>(time("all_to_all", bytes, 0, 1));
    exchanges_ = memory_of_device().used - collectives;
  }

  [[nodiscard]] Bytes held() const { return std::max(Bytes{}, held_); }
  [[nodiscard]] Bytes of_a_peer() const {
    return std::max(Bytes{}, exchanges_) / (communicator_->size() - 1);
  }
  /// Device time of this many in a row. Waits like run threads: a failure elsewhere ends
  /// it.
  [[nodiscard]] Seconds time(std::string_view what, std::int64_t bytes, int distance, int runs) {
    timer_->begin(stream_.get());
    for (int i = 0; i < runs; ++i) run(what, bytes, distance);
    timer_->end(stream_.get());
    run_threads_.poll(
        [&] {
          nccl_.check(rank_);
          return timer_->over();
        },
        [] { return std::string("a collective of NCCL"); });
    return timer_->time();
  }

 private:
  /// `bytes` of the whole tensor, in place; a message goes from the first to the one at `distance`.
  void run(std::string_view what, std::int64_t bytes, int distance) {
    const std::int64_t all = bytes / bytes_of(Element::bf16);
    const std::int64_t part = all / communicator_->size();
    auto* const data = buffer_->as<std::uint16_t>();
    if (what == "all_reduce") {
      communicator_->all_reduce(data, all, Element::bf16, Reduction::max);
    } else if (what == "all_gather") {
      communicator_->all_gather(data + rank_ * part, data, part, Element::bf16);
    } else if (what == "reduce_scatter") {
      communicator_->reduce_scatter(data, data + rank_ * part, part, Element::bf16);
    } else if (what == "all_to_all") {  // from the first half to the second
      const std::int64_t sent = all / 2 / communicator_->size();
      const std::vector<std::int64_t> parts(static_cast<std::size_t>(communicator_->size()), sent);
      communicator_->all_to_all(data, parts, data + sent * communicator_->size(), parts,
                                Element::bf16);
    } else if (rank_ == 0) {
      communicator_->send(data, all, Element::bf16, distance);
    } else if (rank_ == distance) {
      communicator_->receive(data, all, Element::bf16, 0);
    }
  }

  RunThreads& run_threads_;
  Nccl& nccl_;
  int rank_;
  OwnStream stream_;
  std::unique_ptr<Communicator> communicator_;
  std::optional<DeviceBuffer> buffer_;
  std::optional<EventTimer> timer_;
  Bytes held_;
  Bytes exchanges_;
};

/// One of the members; rank 0 decides the number of repetitions and keeps the times.
class Member {
 public:
  Member(MeasuredEnd& gpu, Communicator& others, const Stopwatch& watch)
      : gpu_(gpu), others_(others), watch_(watch) {}

  void time(const char* what, std::int64_t bytes, int distance, std::vector<Measurement>& out) {
    static_cast<void>(gpu_.time(what, bytes, distance, 1));
    others_.barrier();
    const Seconds one = gpu_.time(what, bytes, distance, 1);
    constexpr Seconds kBatch{1e-3};
    constexpr int kMaxRuns = 100;
    constexpr int kMinBatches = 4;
    constexpr int kMaxBatches = 200;
    const Seconds budget = watch_.for_next();
    const double fits = one > Seconds{} ? kBatch / one : kMaxRuns;
    const int runs =
        agreed(budget > Seconds{} ? std::clamp(static_cast<int>(fits), 1, kMaxRuns) : 1);
    const double many = one > Seconds{} ? budget / (runs * one) : kMaxBatches;
    const int batches =
        agreed(static_cast<int>(std::clamp<double>(many, kMinBatches, kMaxBatches)));
    std::vector<Seconds> times;
    for (int i = 0; i < batches; ++i) {
      others_.barrier();
      times.push_back(gpu_.time(what, bytes, distance, runs) / runs);
    }
    if (others_.rank() != 0) return;
    const bool message = distance > 0;
    const int ranks = message ? 2 : others_.size();
    std::vector<std::int64_t> shape{bytes};
    if (message) shape.push_back(distance);
    out.push_back({what, ranks, 1, std::move(shape), median(std::move(times))});
  }
  /// Rank 0 decides.
  [[nodiscard]] bool time_is_up() { return agreed(watch_.over() ? 1 : 0) != 0; }

 private:
  int agreed(int of_first) {
    std::int32_t number = of_first;
    others_.broadcast(&number, 1, Element::i32, 0);
    return number;
  }
  MeasuredEnd& gpu_;
  Communicator& others_;
  const Stopwatch& watch_;
};

/// Rounds to whole parts of 16 bytes for every member.
std::int64_t divisible(std::int64_t bytes, int members) {
  const std::int64_t unit = std::int64_t{16} * members;
  return std::max(unit, bytes / unit * unit);
}

void measure_group(int size, bool all, const MeasuredSizes& sizes, const Stopwatch& watch,
                   GpuFacts& facts, std::vector<Measurement>& out) {
  constexpr Seconds kDeadline{60};
  RunThreads run_threads(kDeadline);
  std::vector<int> members(static_cast<std::size_t>(size));
  std::iota(members.begin(), members.end(), 0);
  const Group group{"measured", members};
  const auto others = thread_communicators(run_threads, group);
  std::vector<std::unique_ptr<MeasuredEnd>> ends(members.size());
  Nccl nccl(run_threads);  // ends before the streams its work is on
  const NcclId id = new_nccl_id();
  const std::int64_t max_bytes =
      divisible(*std::max_element(sizes.collectives.begin(), sizes.collectives.end()), size);
  std::mutex writing;
  for (int rank = 0; rank < size; ++rank) {
    run_threads.add(fmt::format("GPU {}", rank), [&, rank] {
      const auto own = static_cast<std::size_t>(rank);
      ends[own] = std::make_unique<MeasuredEnd>(run_threads, nccl, group, rank, id, *others[own],
                                                max_bytes);
      MeasuredEnd& gpu = *ends[own];
      Member member(gpu, *others[own], watch);
      {
        const std::lock_guard lock(writing);
        facts.communicator = std::max(facts.communicator, gpu.held());
        facts.peer = std::max(facts.peer, gpu.of_a_peer());
      }
      for (const std::int64_t bytes : sizes.collectives) {
        for (const char* what : kAmongAll) {
          if (member.time_is_up()) return;
          member.time(what, divisible(bytes, size), 0, out);
        }
        for (int distance = 1; all && distance < size; ++distance) {
          if (member.time_is_up()) return;
          member.time("send_recv", divisible(bytes, size), distance, out);
        }
      }
    });
  }
  run_threads.run();
}

}  // namespace

/// All GPUs first: of their group rates follow without the others.
void measure_collectives(const MeasuredSizes& sizes,
                         const std::function<void(const std::string&)>& log, GpuFacts& facts,
                         std::vector<Measurement>& out) {
  if (sizes.collectives.empty()) return;
  const Stopwatch watch(sizes);
  std::vector<int> groups{facts.gpus};
  for (int size = 2; size < facts.gpus; size *= 2) groups.push_back(size);
  for (const int size : groups) {
    const bool left_out = watch.over();
    log(fmt::format("collectives among {} GPUs{}", size,
                    left_out ? " are left out: the time is up" : ""));
    if (!left_out) measure_group(size, size == facts.gpus, sizes, watch, facts, out);
  }
  use_device(0);
}

}  // namespace echelon::cuda
