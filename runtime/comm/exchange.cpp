#include "runtime/comm/exchange.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace echelon {

/// Step 1: the longest length. Step 2: lengths and texts, padded to it.
std::vector<std::string> exchange(Communicator& all, const std::string& own) {
  if (all.size() == 1) return {own};
  const auto members = static_cast<std::size_t>(all.size());
  auto longest = static_cast<std::int32_t>(own.size());
  all.all_reduce(&longest, 1, Element::i32, Reduction::max);
  std::vector<std::string> out(members);
  if (longest == 0) return out;
  const std::size_t words = 1 + (static_cast<std::size_t>(longest) + 3) / 4;
  std::vector<std::int32_t> mine(words, 0);
  mine.front() = static_cast<std::int32_t>(own.size());
  std::memcpy(mine.data() + 1, own.data(), own.size());
  std::vector<std::int32_t> texts(words * members);
  all.all_gather(mine.data(), texts.data(), static_cast<std::int64_t>(words), Element::i32);
  for (std::size_t member = 0; member < members; ++member) {
    const std::int32_t* const from = texts.data() + member * words;
    out[member].assign(reinterpret_cast<const char*>(from + 1), static_cast<std::size_t>(*from));
  }
  return out;
}

}  // namespace echelon
