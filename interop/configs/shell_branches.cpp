#include "interop/configs/shell_branches.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <span>
#include <string_view>
#include <utility>

namespace echelon {

namespace {

using Words = std::vector<ShellWord>;

Truth truth(bool value) { return value ? Truth::yes : Truth::no; }

std::optional<std::int64_t> integer(const ShellWord& word) {
  const std::string value = arithmetic_value(word.text);
  std::int64_t out = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), out);
  if (value.empty() || error != std::errc{}) return std::nullopt;
  return out;
}

bool is_pattern(const ShellWord& word) {
  return !word.quoted && word.text.find_first_of("*?[") != std::string::npos;
}

/// Recursive descent over the words of a test; `extended`: of [[ ]].
class Test {
 public:
  Test(std::span<const ShellWord> words, bool extended) : words_(words), extended_(extended) {}

  Truth result() {
    if (words_.empty()) return Truth::no;
    const Truth all = alternatives(0);
    return at_ == words_.size() ? all : Truth::unknown;
  }

 private:
  static constexpr int kDeepest = 32;

  [[nodiscard]] std::size_t left() const { return words_.size() - at_; }
  [[nodiscard]] const ShellWord& peek(std::size_t ahead = 0) const { return words_[at_ + ahead]; }
  [[nodiscard]] bool next_is(std::string_view text, std::size_t ahead = 0) const {
    return left() > ahead && !peek(ahead).quoted && peek(ahead).text == text;
  }
  bool takes(std::string_view text) {
    if (!next_is(text)) return false;
    ++at_;
    return true;
  }

  Truth alternatives(int depth) {
    Truth out = conjunction(depth);
    while (extended_ && takes("||")) out = either(out, conjunction(depth));
    return out;
  }

  Truth conjunction(int depth) {
    Truth out = primary(depth);
    while (extended_ && takes("&&")) out = both(out, primary(depth));
    return out;
  }

  Truth fail() {
    at_ = words_.size() + 1;  // unknown as a whole
    return Truth::unknown;
  }

  Truth primary(int depth) {
    if (left() == 0 || at_ > words_.size() || depth > kDeepest) return fail();
    if (next_is("!") && left() > 1) {
      ++at_;
      return opposite(primary(depth + 1));
    }
    if (extended_ && takes("(")) {
      const Truth inner = alternatives(depth + 1);
      return takes(")") ? inner : fail();
    }
    if (left() >= 3 && !peek(1).quoted && is_comparison(peek(1).text)) {
      at_ += 3;
      return comparison(words_[at_ - 3], words_[at_ - 2].text, words_[at_ - 1]);
    }
    if (left() >= 2 && (next_is("-z") || next_is("-n"))) {
      at_ += 2;
      const ShellWord& word = words_[at_ - 1];
      if (!word.unresolved.empty()) return Truth::unknown;
      return truth(word.text.empty() == (words_[at_ - 2].text == "-z"));
    }
    if (!peek().quoted && peek().text.starts_with('-')) return fail();  // -f, -d, -v, -z alone
    const ShellWord& word = words_[at_++];
    if (!word.unresolved.empty()) return Truth::unknown;
    return truth(!word.text.empty());
  }

  [[nodiscard]] bool is_comparison(std::string_view text) const {
    constexpr std::array<std::string_view, 9> kComparisons = {"=",   "==",  "!=",  "-eq", "-ne",
                                                              "-lt", "-le", "-gt", "-ge"};
    return std::ranges::find(kComparisons, text) != kComparisons.end() ||
           (extended_ && (text == "=~" || text == "<" || text == ">"));
  }

  Truth comparison(const ShellWord& a, std::string_view how, const ShellWord& b) const {
    if (!a.unresolved.empty() || !b.unresolved.empty()) return Truth::unknown;
    if (how == "=" || how == "==" || how == "!=") {
      if (extended_ && is_pattern(b)) return Truth::unknown;
      return truth((a.text == b.text) == (how != "!="));
    }
    const std::optional<std::int64_t> x = integer(a);
    const std::optional<std::int64_t> y = integer(b);
    if (!x || !y) return Truth::unknown;
    if (how == "-eq") return truth(*x == *y);
    if (how == "-ne") return truth(*x != *y);
    if (how == "-lt") return truth(*x < *y);
    if (how == "-le") return truth(*x <= *y);
    if (how == "-gt") return truth(*x > *y);
    if (how == "-ge") return truth(*x >= *y);
    return Truth::unknown;  // =~, and the order of texts
  }

  std::span<const ShellWord> words_;
  bool extended_;
  std::size_t at_ = 0;
};

bool is_word(const Words& words, std::size_t at, std::string_view text) {
  return at < words.size() && !words[at].quoted && words[at].text == text;
}

}  // namespace

Truth opposite(Truth value) { return value == Truth::unknown ? value : truth(value == Truth::no); }
Truth both(Truth a, Truth b) { return std::min(a, b); }
Truth either(Truth a, Truth b) { return std::max(a, b); }

bool is_test(const Words& words) {
  const std::size_t first = is_word(words, 0, "!") ? 1 : 0;
  return std::ranges::any_of(std::array<std::string_view, 5>{"[", "[[", "test", "true", "false"},
                             [&](std::string_view name) { return is_word(words, first, name); });
}

Truth test_result(const Words& words) {
  if (is_word(words, 0, "!")) return opposite(test_result({words.begin() + 1, words.end()}));
  if (is_word(words, 0, "true")) return Truth::yes;
  if (is_word(words, 0, "false")) return Truth::no;
  const bool extended = is_word(words, 0, "[[");
  const bool closed = extended || is_word(words, 0, "[");
  if (!closed && !is_word(words, 0, "test")) return Truth::unknown;
  if (closed && !is_word(words, words.size() - 1, extended ? "]]" : "]")) return Truth::unknown;
  const std::span<const ShellWord> inside =
      std::span(words).subspan(1, words.size() - (closed ? 2 : 1));
  return Test(inside, extended).result();
}

Truth ShellBranches::runs() const {
  Truth out = joined_ == CommandEnd::and_then  ? list_
              : joined_ == CommandEnd::or_else ? opposite(list_)
                                               : Truth::yes;
  for (const Block& block : blocks_) out = both(out, block.runs);
  return out;
}

void ShellBranches::command(const Words& words, CommandEnd end) {
  if (words.empty()) return;
  // A command that is no test is taken to succeed in a list, but not where its result decides.
  const bool test = is_test(words);
  const bool decides = !blocks_.empty() && blocks_.back().in_condition;
  const Truth result = test ? test_result(words) : decides ? Truth::unknown : Truth::yes;
  list_ = joined_ == CommandEnd::and_then  ? both(list_, result)
          : joined_ == CommandEnd::or_else ? either(list_, result)
                                           : result;
  joined_ = end;
  if (decides && end == CommandEnd::list) blocks_.back().condition = list_;
}

void ShellBranches::open_if() {
  Block block{.kind = Block::Kind::branches};
  block.in_condition = true;
  blocks_.push_back(std::move(block));
}

void ShellBranches::open_loop() {
  blocks_.push_back({.kind = Block::Kind::loop, .runs = Truth::unknown});
}

void ShellBranches::open_case(ShellWord subject) {
  Block block{.kind = Block::Kind::patterns, .runs = Truth::unknown};
  block.subject = std::move(subject);
  block.in_pattern = true;
  blocks_.push_back(std::move(block));
}

void ShellBranches::open_branch(Block& block, Truth condition) {
  block.runs = both(opposite(block.before), condition);
  block.before = either(block.before, condition);
}

void ShellBranches::then_branch() {
  if (blocks_.empty() || !blocks_.back().in_condition) return;
  Block& block = blocks_.back();
  block.in_condition = false;
  open_branch(block, block.condition.value_or(Truth::unknown));
}

void ShellBranches::else_branch(bool with_condition) {
  if (blocks_.empty() || blocks_.back().kind != Block::Kind::branches) return;
  Block& block = blocks_.back();
  if (with_condition) {
    block.in_condition = true;
    block.condition.reset();
    block.runs = opposite(block.before);
  } else {
    open_branch(block, Truth::yes);
  }
}

void ShellBranches::close() {
  if (!blocks_.empty()) blocks_.pop_back();
}

bool ShellBranches::awaits_pattern() const { return !blocks_.empty() && blocks_.back().in_pattern; }

void ShellBranches::pattern(const Words& alternatives) {
  Block& block = blocks_.back();
  block.in_pattern = false;
  Truth matches = Truth::no;
  for (const ShellWord& each : alternatives) {
    const bool any = !each.quoted && each.text == "*";
    const bool known = block.subject.unresolved.empty() && each.unresolved.empty();
    matches = either(matches, any                               ? Truth::yes
                              : !known || is_pattern(each)      ? Truth::unknown
                              : each.text == block.subject.text ? Truth::yes
                                                                : Truth::no);
  }
  open_branch(block, matches);
}

void ShellBranches::end_of_pattern() {
  if (!blocks_.empty() && blocks_.back().kind == Block::Kind::patterns) {
    blocks_.back().in_pattern = true;
    blocks_.back().runs = Truth::unknown;
  }
}

}  // namespace echelon
