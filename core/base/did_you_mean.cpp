#include "core/base/did_you_mean.hpp"

#include <algorithm>
#include <compare>
#include <cstddef>
#include <vector>

#include "core/base/text.hpp"

namespace echelon {

namespace {

/// Number of edits that turn `a` into `b`: insert, delete, substitute, swap two adjacent letters
/// (optimal string alignment: no letter is edited twice). Three rows of the table are enough.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> above(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) above[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower_case(a[i - 1]) == lower_case(b[j - 1]);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (same ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && lower_case(a[i - 1]) == lower_case(b[j - 2]) &&
                           lower_case(a[i - 2]) == lower_case(b[j - 1]);
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(above);
    above.swap(row);
  }
  return above[b.size()];
}

/// Strips the leading dashes, which all flags have in common.
std::string_view without_dashes(std::string_view name) {
  return name.substr(std::min(name.find_first_not_of('-'), name.size()));
}

/// "global-batch" → global, batch.
std::vector<std::string> words_of(std::string_view name) {
  std::vector<std::string> words;
  bool inside = false;
  for (const char letter : name) {
    const char c = lower_case(letter);
    const bool part = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (part && !inside) words.emplace_back();
    if (part) words.back() += c;
    inside = part;
  }
  return words;
}

/// "Micro-Batch" → microbatch.
std::string letters_of(std::string_view name) {
  std::string letters;
  for (const std::string& word : words_of(name)) letters += word;
  return letters;
}

/// flash → flash-attention, micro-batch-size → microbatch.
bool begins_alike(std::string_view word, std::string_view name) {
  constexpr std::size_t kShortest = 3;
  return (word.size() >= kShortest && name.starts_with(word)) ||
         (name.size() > kShortest && word.starts_with(name));
}

/// Largest number of edits at which `known` is still a plausible match for `word`.
std::size_t tolerance(std::string_view word, std::string_view known) {
  const std::size_t longer = std::max(word.size(), known.size());
  const std::size_t third = std::max<std::size_t>(2, longer / 3);
  return longer == 0 ? 0 : std::min(third, longer - 1);  // at least one letter must match
}

/// How a name resembles the typed word, the closest resemblance first.
enum class Similarity { initials, one_edit, beginning, words, some_edits, none };

struct Match {
  Similarity similarity = Similarity::none;
  std::size_t edits = 0;  ///< or difference in length
  auto operator<=>(const Match&) const = default;
};

/// lr → learning-rate.
bool are_initials(std::string_view word, const std::vector<std::string>& words) {
  if (word.size() < 2 || word.size() != words.size()) return false;
  for (std::size_t i = 0; i < word.size(); ++i) {
    if (lower_case(word[i]) != words[i].front()) return false;
  }
  return true;
}

/// batch-size → global-batch: both have a common word of at least three letters.
bool share_a_word(const std::vector<std::string>& typed, const std::vector<std::string>& known) {
  constexpr std::size_t kShortest = 3;
  return std::ranges::any_of(typed, [&](const std::string& word) {
    return word.size() >= kShortest && std::ranges::find(known, word) != known.end();
  });
}

Match match_of(std::string_view word, std::string_view name) {
  const std::size_t length_difference =
      word.size() > name.size() ? word.size() - name.size() : name.size() - word.size();
  const std::size_t limit = tolerance(word, name);
  if (are_initials(word, words_of(name))) return {Similarity::initials, length_difference};
  const std::size_t edits = length_difference <= limit ? edit_distance(word, name) : limit + 1;
  if (edits <= std::min<std::size_t>(1, limit)) return {Similarity::one_edit, edits};
  if (begins_alike(letters_of(word), letters_of(name)))
    return {Similarity::beginning, length_difference};
  if (edits <= limit) return {Similarity::some_edits, edits};
  return {};
}

}  // namespace

std::string nearest_name(std::string_view word, std::span<const std::string> known) {
  const std::string* best = nullptr;
  Match closest;
  const std::string_view typed = without_dashes(word);
  constexpr std::size_t kLongest = 256;  // longer words are not names
  if (typed.empty() || typed.size() > kLongest) return {};
  const std::vector<std::string> typed_words = words_of(typed);
  for (const std::string& name : known) {
    Match match = match_of(typed, without_dashes(name));
    if (match.similarity > Similarity::words && share_a_word(typed_words, words_of(name))) {
      match = {Similarity::words, edit_distance(typed, without_dashes(name))};
    }
    if (match.similarity == Similarity::none || (best != nullptr && match >= closest)) continue;
    best = &name;
    closest = match;
  }
  return best == nullptr ? std::string() : *best;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> known) {
  const std::string name = nearest_name(word, known);
  return name.empty() ? name : "did you mean '" + name + "'?";
}

}  // namespace echelon
