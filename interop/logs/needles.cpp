#include "interop/logs/needles.hpp"

#include <algorithm>
#include <cstring>

namespace echelon {

namespace {

constexpr std::size_t kPrefix = 4;

}  // namespace

std::string_view longest_literal(std::string_view pattern) {
  std::string_view longest;
  for (std::size_t begin = 0; begin < pattern.size();) {
    const std::size_t end = std::min(pattern.find_first_of(" ~#%", begin), pattern.size());
    if (end - begin > longest.size()) longest = pattern.substr(begin, end - begin);
    begin = end + 1;
  }
  return longest;
}

std::size_t Needles::slot_of(const char* four) {
  constexpr std::uint32_t kSpread = 2654435761u;  // Knuth's multiplicative hash
  constexpr int kShift = 20;                      // 32 bits to those of kSlots
  std::uint32_t word = 0;
  std::memcpy(&word, four, kPrefix);
  return static_cast<std::size_t>((word * kSpread) >> kShift);
}

void Needles::add(std::string_view word) {
  if (word.size() < kPrefix) {
    always_ = true;
    return;
  }
  taken_.set(slot_of(word.data()));
  words_.push_back(word);
}

bool Needles::any_in(std::string_view line) const {
  if (always_) return true;
  for (std::size_t at = 0; at + kPrefix <= line.size(); ++at) {
    if (!taken_.test(slot_of(line.data() + at))) continue;
    const std::string_view rest = line.substr(at);
    const auto begins = [&](std::string_view word) { return rest.starts_with(word); };
    if (std::ranges::any_of(words_, begins)) return true;
  }
  return false;
}

}  // namespace echelon
