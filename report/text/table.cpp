#include "report/text/table.hpp"

#include <algorithm>
#include <numeric>
#include <optional>

#include "core/base/expects.hpp"

namespace echelon {

namespace {

constexpr std::size_t kIndent = 2;
constexpr std::size_t kGap = 2;
constexpr std::size_t kNarrowestFold = 20;  ///< a folded column is at least this wide

std::string blanks(std::size_t count) { return std::string(count, ' '); }

std::string without_trailing_blanks(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

std::size_t longest_word(std::string_view text) {
  std::size_t longest = 0;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    longest = std::max(longest, columns_of(word));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
  }
  return longest;
}

/// The lines `text` takes in a column of `width`.
std::vector<std::string> lines_of(const std::string& text, std::size_t width) {
  const std::string whole = folded(text, "", TextStyle{static_cast<int>(width), false, true});
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < whole.size();) {
    const std::size_t end = whole.find('\n', at);
    lines.push_back(whole.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

}  // namespace

void Table::add(std::vector<Cell> row) {
  EXPECTS(row.size() == columns_.size(), "a table row needs one cell per column");
  rows_.push_back(std::move(row));
}

void Table::drop_constant(std::size_t column, std::string_view text) {
  const bool constant = std::all_of(rows_.begin(), rows_.end(), [&](const std::vector<Cell>& row) {
    return row[column].text == text;
  });
  if (constant) dropped_.push_back(column);
}

std::string Table::text(const TextStyle& style) const {
  // Step 1: natural widths.
  std::vector<std::size_t> width(columns_.size());
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    width[c] = columns_of(columns_[c].title);
    for (const auto& row : rows_) width[c] = std::max(width[c], columns_of(row[c].text));
  }
  std::vector<std::size_t> shown;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    if (std::find(dropped_.begin(), dropped_.end(), c) == dropped_.end()) shown.push_back(c);
  }
  const auto total = [&] {
    std::size_t sum = kIndent;
    for (const std::size_t c : shown) sum += width[c] + kGap;
    return sum - kGap;
  };
  // Step 2: fold a long last column, then leave out what is dispensable.
  const auto limit = static_cast<std::size_t>(std::max(style.width, 20));
  const auto foldable = [&] {
    return !shown.empty() && columns_[shown.back()].align == Align::left && shown.size() > 1;
  };
  const auto narrowest = [&](std::size_t column) {
    std::size_t widest_word = kNarrowestFold;
    for (const auto& row : rows_) {
      widest_word = std::max(widest_word, longest_word(row[column].text));
    }
    return widest_word;
  };
  const auto fold = [&] {
    if (!foldable() || total() <= limit) return;
    std::size_t& last = width[shown.back()];
    const std::size_t excess = total() - limit;
    if (last >= excess + narrowest(shown.back())) last -= excess;
  };
  fold();
  while (total() > limit) {
    const auto worst = std::max_element(shown.begin(), shown.end(), [&](auto a, auto b) {
      return columns_[a].dispensable < columns_[b].dispensable;
    });
    if (worst == shown.end() || columns_[*worst].dispensable == 0) break;
    shown.erase(worst);
    fold();
  }
  if (foldable() && total() > limit) {
    width[shown.back()] = std::min(width[shown.back()], narrowest(shown.back()));
  }
  // Step 3: lines.
  std::string out;
  const auto emit = [&](const std::vector<Cell>& cells) {
    std::string line = blanks(kIndent);
    std::string rest;
    for (std::size_t i = 0; i < shown.size(); ++i) {
      const std::size_t c = shown[i];
      std::string text = cells[c].text;
      if (i + 1 == shown.size() && foldable()) {
        const std::vector<std::string> lines = lines_of(text, width[c]);
        text = lines.empty() ? "" : lines.front();
        const std::size_t start = total() - width[c];
        for (std::size_t l = 1; l < lines.size(); ++l) {
          rest += blanks(start) + painted(lines[l], cells[c].paint, style) + "\n";
        }
      }
      const std::size_t wide = columns_of(text);
      const std::string pad = blanks(width[c] > wide ? width[c] - wide : 0);
      const std::string ink = painted(text, cells[c].paint, style);
      if (i > 0) line += blanks(kGap);
      line += columns_[c].align == Align::right ? pad + ink : ink + pad;
    }
    out += without_trailing_blanks(line) + "\n" + rest;
  };
  const bool titled = std::any_of(shown.begin(), shown.end(),
                                  [&](std::size_t c) { return !columns_[c].title.empty(); });
  if (titled) {
    std::vector<Cell> titles;
    for (const Column& column : columns_) titles.emplace_back(column.title, Paint::dim);
    emit(titles);
  }
  for (const auto& row : rows_) emit(row);
  return out;
}

}  // namespace echelon
