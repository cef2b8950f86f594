#include "core/nearest.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace echelon {

namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

/// Edits that turn `a` into `b`: insert, delete, substitute, swap two neighbours (optimal string
/// alignment: no letter is edited twice). Three rows of the table are enough.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> above(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) above[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (same ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
                           lower(a[i - 2]) == lower(b[j - 1]);
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(above);
    above.swap(row);
  }
  return above[b.size()];
}

/// Most edits at which `known` is still a plausible reading of `word`.
std::size_t tolerance(std::string_view word, std::string_view known) {
  const std::size_t longer = std::max(word.size(), known.size());
  const std::size_t third = std::max<std::size_t>(2, longer / 3);
  return longer == 0 ? 0 : std::min(third, longer - 1);  // something must be left in common
}

}  // namespace

std::string nearest_name(std::string_view word, std::span<const std::string> known) {
  const std::string* best = nullptr;
  std::size_t fewest = 0;
  for (const std::string& name : known) {
    const std::size_t limit = tolerance(word, name);
    const std::size_t apart =
        word.size() > name.size() ? word.size() - name.size() : name.size() - word.size();
    if (apart > limit) continue;  // a very long word costs nothing
    const std::size_t edits = edit_distance(word, name);
    if (edits > limit || (best != nullptr && edits >= fewest)) continue;
    best = &name;
    fewest = edits;
  }
  return best == nullptr ? std::string() : *best;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> known) {
  const std::string name = nearest_name(word, known);
  return name.empty() ? name : "did you mean '" + name + "'?";
}

}  // namespace echelon
