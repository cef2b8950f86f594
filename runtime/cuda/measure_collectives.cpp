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

#include "runtime/clock.hpp"
#include "runtime/crew.hpp"
#include "runtime/cuda/checks.hpp"
#include "runtime/cuda/measure_parts.hpp"
#include "runtime/cuda/nccl.hpp"
#include "runtime/failure.hpp"
#include "runtime/measure/parts.hpp"
#include "runtime/thread_communicator.hpp"

namespace echelon::cuda {
namespace {

constexpr std::array<const char*, 3> kAmongAll = {"all_reduce", "all_gather", "reduce_scatter"};

/// A GPU's end of a group, with a stream and a block of memory of its own.
class MeasuredEnd {
 public:
  MeasuredEnd(Crew& crew, Nccl& nccl, const Group& group, int device, const NcclId& id,
              Communicator& others, std::int64_t bytes)
      : crew_(crew), nccl_(nccl), rank_(device) {
    use_device(device);
    stream_ = new_stream();
    const Bytes before = memory_of_device().taken;
    communicator_ = nccl.join(group, device, id, stream_.get());
    room_.emplace(Room::demanded(bytes, Room::Where::device, "a collective"));
    fill(*room_, bytes / bytes_of(Element::bf16), false, stream_.get());
    timer_.emplace();
    others.barrier();  // nobody takes memory while a GPU waits for others: CUDA may wait for that
    static_cast<void>(time("all_reduce", bytes, 0, 1));  // channels are made by the first
    held_ = memory_of_device().taken - before - Bytes{static_cast<double>(bytes)};
  }

  [[nodiscard]] Bytes held() const { return std::max(Bytes{}, held_); }
  /// Device time of so many in a row. Waits as members of a crew do: what goes wrong elsewhere
  /// ends it.
  [[nodiscard]] Seconds time(std::string_view what, std::int64_t bytes, int distance, int runs) {
    timer_->begin(stream_.get());
    for (int i = 0; i < runs; ++i) run(what, bytes, distance);
    timer_->end(stream_.get());
    crew_.poll(
        [&] {
          nccl_.check();
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
    auto* const data = room_->as<std::uint16_t>();
    if (what == "all_reduce") {
      communicator_->all_reduce(data, all, Element::bf16, Reduction::max);
    } else if (what == "all_gather") {
      communicator_->all_gather(data + rank_ * part, data, part, Element::bf16);
    } else if (what == "reduce_scatter") {
      communicator_->reduce_scatter(data, data + rank_ * part, part, Element::bf16);
    } else if (rank_ == 0) {
      communicator_->send(data, all, Element::bf16, distance);
    } else if (rank_ == distance) {
      communicator_->receive(data, all, Element::bf16, 0);
    }
  }

  Crew& crew_;
  Nccl& nccl_;
  int rank_;
  OwnStream stream_;
  std::unique_ptr<Communicator> communicator_;
  std::optional<Room> room_;
  std::optional<EventTimer> timer_;
  Bytes held_;
};

/// One of the members; rank 0 says how often, and keeps the times.
class Member {
 public:
  Member(MeasuredEnd& gpu, Communicator& others, const Stopwatch& watch)
      : gpu_(gpu), others_(others), watch_(watch) {}

  void take(const char* what, std::int64_t bytes, int distance, std::vector<Measurement>& out) {
    static_cast<void>(gpu_.time(what, bytes, distance, 1));
    others_.barrier();
    const Seconds one = gpu_.time(what, bytes, distance, 1);
    constexpr Seconds kBatch{1e-3};
    constexpr int kMostRuns = 100;
    constexpr int kLeastBatches = 4;
    constexpr int kMostBatches = 200;
    const Seconds budget = watch_.for_next();
    const double fits = one > Seconds{} ? kBatch / one : kMostRuns;
    const int runs =
        agreed(budget > Seconds{} ? std::clamp(static_cast<int>(fits), 1, kMostRuns) : 1);
    const double many = one > Seconds{} ? budget / (runs * one) : kMostBatches;
    const int batches =
        agreed(static_cast<int>(std::clamp<double>(many, kLeastBatches, kMostBatches)));
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
    out.push_back({what, ranks, 1, std::move(shape), undisturbed(std::move(times))});
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

/// Whole parts of 16 bytes for every member.
std::int64_t divisible(std::int64_t bytes, int members) {
  const std::int64_t unit = std::int64_t{16} * members;
  return std::max(unit, bytes / unit * unit);
}

void measure_group(int size, bool all, const MeasuredSizes& sizes, const Stopwatch& watch,
                   GpuFacts& facts, std::vector<Measurement>& out) {
  constexpr Seconds kDeadline{60};
  Crew crew(kDeadline);
  std::vector<int> members(static_cast<std::size_t>(size));
  std::iota(members.begin(), members.end(), 0);
  const Group group{"measured", members};
  const auto others = thread_communicators(crew, group);
  std::vector<std::unique_ptr<MeasuredEnd>> ends(members.size());
  Nccl nccl(crew);  // ends before the streams its work is on
  const NcclId id = new_nccl_id();
  const std::int64_t most =
      divisible(*std::max_element(sizes.collectives.begin(), sizes.collectives.end()), size);
  std::mutex writing;
  for (int rank = 0; rank < size; ++rank) {
    crew.add(fmt::format("GPU {}", rank), [&, rank] {
      const auto own = static_cast<std::size_t>(rank);
      ends[own] = std::make_unique<MeasuredEnd>(crew, nccl, group, rank, id, *others[own], most);
      MeasuredEnd& gpu = *ends[own];
      Member member(gpu, *others[own], watch);
      {
        const std::lock_guard lock(writing);
        facts.communicator = std::max(facts.communicator, gpu.held());
      }
      for (const std::int64_t bytes : sizes.collectives) {
        for (const char* what : kAmongAll) {
          if (member.time_is_up()) return;
          member.take(what, divisible(bytes, size), 0, out);
        }
        for (int distance = 1; all && distance < size; ++distance) {
          if (member.time_is_up()) return;
          member.take("send_recv", divisible(bytes, size), distance, out);
        }
      }
    });
  }
  crew.run();
}

}  // namespace

void measure_collectives(const MeasuredSizes& sizes, const Stopwatch& watch,
                         const std::function<void(const std::string&)>& tell, GpuFacts& facts,
                         std::vector<Measurement>& out) {
  static_cast<void>(ncclGetVersion(&facts.nccl));  // fails for a null pointer alone
  if (sizes.collectives.empty()) return;
  for (int size = 2; !watch.over(); size = std::min(2 * size, facts.gpus)) {
    tell(fmt::format("collectives among {} GPUs", size));
    measure_group(size, size == facts.gpus, sizes, watch, facts, out);
    if (size == facts.gpus) break;
  }
  use_device(0);
}

}  // namespace echelon::cuda
