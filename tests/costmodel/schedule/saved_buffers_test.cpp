// The buffers of saved activations, against a rank that takes and frees them pass by pass.
#include "costmodel/schedule/saved_buffers.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "costmodel/time/pipeline.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

/// Bytes of all buffers where chunk c saves sizes[c]: of those that are free, a forward takes the
/// one with the smallest number.
double bytes_by_replay(const PipelineShape& shape, int rank, const std::vector<double>& sizes) {
  std::map<int, double> largest;
  std::map<std::pair<int, int>, int> held;  // buffer, by chunk and microbatch
  for (const ComputeStep& step : compute_order(shape, rank)) {
    const std::pair pass(step.chunk, step.microbatch);
    if (step.op == Op::backward) {
      held.erase(pass);
      continue;
    }
    std::set<int> taken;
    for (const auto& [other, buffer] : held) taken.insert(buffer);
    int buffer = 0;
    while (taken.count(buffer) > 0) ++buffer;
    held[pass] = buffer;
    double& most = largest[buffer];
    most = std::max(most, sizes[static_cast<std::size_t>(step.chunk)]);
  }
  double sum = 0;
  for (const auto& [buffer, bytes] : largest) sum += bytes;
  return sum;
}

double bytes_by_chunks(const PipelineShape& shape, int rank, const std::vector<double>& sizes) {
  double sum = 0;
  for (const BuffersAlike& alike : saved_buffers(shape, rank)) {
    double most = 0;
    for (const int chunk : alike.chunks) {
      most = std::max(most, sizes[static_cast<std::size_t>(chunk)]);
    }
    sum += alike.count * most;
  }
  return sum;
}

PipelineShape chunked(int ranks, int chunks, int microbatches, int group) {
  return {ScheduleKind::interleaved, ranks, chunks, microbatches, group};
}

}  // namespace

TEST_CASE("buffers of saved activations are as large as the chunks that they serve") {
  const std::vector<PipelineShape> shapes = {chunked(2, 2, 8, 2),  chunked(2, 5, 12, 3),
                                             chunked(3, 4, 15, 5), chunked(4, 3, 12, 4),
                                             chunked(4, 2, 22, 6), chunked(5, 7, 40, 5)};
  for (const PipelineShape& shape : shapes) {
    for (int rank = 0; rank < shape.ranks; ++rank) {
      INFO(shape.ranks << " ranks, " << shape.chunks << " chunks, rank " << rank);
      std::vector<double> sizes;
      for (int c = 0; c < shape.chunks; ++c) sizes.push_back(1 + (c * 7 + rank * 3) % 5);
      CHECK(bytes_by_chunks(shape, rank, sizes) == bytes_by_replay(shape, rank, sizes));
      const std::vector<double> alike(sizes.size(), 2);
      CHECK(bytes_by_chunks(shape, rank, alike) ==
            2 * static_cast<double>(chunks_in_flight(shape.kind, shape.ranks, shape.chunks, rank,
                                                     shape.microbatches, shape.group)));
    }
  }
}

TEST_CASE("threads that ask for the same buffers get the same answer") {
  const PipelineShape shape = chunked(4, 6, 24, 4);
  std::vector<const std::vector<BuffersAlike>*> found(4);
  std::vector<std::thread> threads;
  for (auto& each : found) {
    threads.emplace_back([&] { each = &saved_buffers(shape, 1); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto* each : found) CHECK(each == found.front());
}
