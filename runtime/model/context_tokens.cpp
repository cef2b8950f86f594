#include "runtime/model/context_tokens.hpp"

#include <algorithm>

namespace echelon {

std::vector<TokenRun> context_tokens(std::int64_t sequence, int cp, CpComm comm, int rank) {
  if (cp == 1 || comm != CpComm::ring) {
    const std::int64_t own = sequence / cp;
    return {{0, rank * own, own}};
  }
  const std::int64_t part = sequence / (std::int64_t{2} * cp);
  return {{0, rank * part, part}, {part, (2 * cp - 1 - rank) * part, part}};
}

std::vector<TokenRun> part_of(const std::vector<TokenRun>& runs, std::int64_t first,
                              std::int64_t count) {
  std::vector<TokenRun> out;
  for (const TokenRun& run : runs) {
    const std::int64_t begin = std::max(first, run.at);
    const std::int64_t end = std::min(first + count, run.at + run.count);
    if (begin < end) out.push_back({begin - first, run.position + begin - run.at, end - begin});
  }
  return out;
}

}  // namespace echelon
