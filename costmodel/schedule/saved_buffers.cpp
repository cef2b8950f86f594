#include "costmodel/schedule/saved_buffers.hpp"

#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <queue>
#include <tuple>
#include <utility>

namespace echelon {
namespace {

std::vector<BuffersAlike> find_buffers(const PipelineShape& shape, int rank) {
  std::vector<std::vector<int>> served;  // chunks, by buffer
  std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> free;
  const auto m = static_cast<std::size_t>(shape.microbatches);
  std::vector<std::size_t> used(m * static_cast<std::size_t>(shape.chunks));
  for (const ComputeStep& step : compute_order(shape, rank)) {
    const auto chunk = static_cast<std::size_t>(step.chunk);
    std::size_t& buffer = used[chunk * m + static_cast<std::size_t>(step.microbatch)];
    if (step.op != Op::forward) {
      free.push(buffer);
      continue;
    }
    if (free.empty()) {
      free.push(served.size());
      served.emplace_back();
    }
    buffer = free.top();
    free.pop();
    std::vector<int>& chunks = served[buffer];
    const auto at = std::ranges::lower_bound(chunks, step.chunk);
    if (at == chunks.end() || *at != step.chunk) chunks.insert(at, step.chunk);
  }
  std::ranges::sort(served);
  std::vector<BuffersAlike> out;
  for (std::vector<int>& chunks : served) {
    if (out.empty() || out.back().chunks != chunks) out.push_back({std::move(chunks), 0});
    out.back().count += 1;
  }
  return out;
}

}  // namespace

const std::vector<BuffersAlike>& saved_buffers(const PipelineShape& shape, int rank) {
  using Key = std::tuple<ScheduleKind, int, int, int, int, int>;
  static std::mutex mutex;
  static std::map<Key, std::vector<BuffersAlike>> known;
  const Key key{shape.kind, shape.ranks, shape.chunks, shape.microbatches, shape.group, rank};
  {
    const std::lock_guard lock(mutex);
    if (const auto at = known.find(key); at != known.end()) return at->second;
  }
  std::vector<BuffersAlike> found = find_buffers(shape, rank);
  const std::lock_guard lock(mutex);
  return known.try_emplace(key, std::move(found)).first->second;
}

}  // namespace echelon
