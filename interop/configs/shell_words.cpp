// Over 400 lines because one pass over the characters keeps words, variables and branches together.
#include "interop/configs/shell_words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "core/base/text.hpp"
#include "interop/configs/shell_branches.hpp"

namespace echelon {

namespace {

constexpr std::size_t kLongestValue = 64 << 10;
constexpr std::size_t kMostWords = 100'000;
constexpr int kDeepestExpansion = 16;

using Words = std::vector<ShellWord>;

bool starts_name(char c) { return (lower_case(c) >= 'a' && lower_case(c) <= 'z') || c == '_'; }
bool in_name(char c) { return starts_name(c) || (c >= '0' && c <= '9'); }
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

std::string name_at(std::string_view text) {
  std::size_t length = 0;
  while (length < text.size() && in_name(text[length])) ++length;
  return std::string(text.substr(0, length));
}

// Where a variable that the script does not set stands in a value, its name stands between marks: a
// value in quotes splits into words later, of which those alone with marks are not known.
constexpr char kMarkBegin = '\x01';
constexpr char kMarkEnd = '\x02';
// A mark may be read a second time, when its characters must mean nothing to a shell.
constexpr std::string_view kSpecial = " $'";
constexpr std::string_view kInMarks = "\x03\x04\x05";

std::string translated(std::string text, std::string_view from, std::string_view to) {
  for (char& c : text) {
    const std::size_t at = from.find(c);
    if (at != std::string_view::npos) c = to[at];
  }
  return text;
}

std::string mark_of(const std::string& name) {
  return kMarkBegin + translated(name, kSpecial, kInMarks) + kMarkEnd;
}

bool is_marked(std::string_view text) { return text.find(kMarkBegin) != std::string_view::npos; }

/// The word without marks, and with the name of the last one.
ShellWord without_marks(ShellWord word) {
  if (!is_marked(word.text)) return word;
  if (word.quoted) word.marked = word.text;
  std::string text;
  for (std::size_t i = 0; i < word.text.size(); ++i) {
    if (word.text[i] != kMarkBegin) {
      text += word.text[i];
      continue;
    }
    const std::size_t end = std::min(word.text.find(kMarkEnd, i), word.text.size());
    word.unresolved = word.text.substr(i + 1, end - i - 1);
    i = end;
  }
  word.unresolved = translated(std::move(word.unresolved), kInMarks, kSpecial);
  word.text = std::move(text);
  return word;
}

/// A variable: one value, or the elements of an array.
struct Variable {
  Words values;
  bool array = false;
  bool conditional = false;  ///< set in a branch, or to several values in branches
};

class ShellParser {
 public:
  ShellParser(std::string_view text, std::string_view where) : text_(text), where_(where) {}

  Result<ShellScript> run() {
    while (!error_ && at_ < text_.size()) step();
    end_command(CommandEnd::list);
    if (error_) return *error_;
    return std::move(script_);
  }

 private:
  // ------------------------------------------------------------------------- characters
  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  char take() {
    const char c = text_[at_++];
    if (c == '\n') ++line_;
    return c;
  }
  void fail(std::string found, std::string expected, int line) {
    if (error_) return;
    error_ =
        input_error(fmt::format("{} line {}", where_, line), std::move(found), std::move(expected));
  }

  /// One word, blank, operator or comment between commands' words.
  void step() {
    const char c = peek();
    if (is_blank(c)) {
      take();
    } else if (std::string_view("&|()<>").find(c) != std::string_view::npos &&
               in_double_brackets()) {
      operator_of_test();
    } else if (c == '(' && peek(1) == '(' && begins_command()) {
      arithmetic_test();
    } else if (c == '\\' && (peek(1) == '\n' || (peek(1) == '\r' && peek(2) == '\n'))) {
      while (take() != '\n') {
      }
    } else if (c == '#') {
      comment();
    } else if (c == '\n' || c == ';' || c == '&' || c == '|' || c == '(' || c == ')') {
      take();
      const bool twice = peek() == c;
      if (twice && c != '\n' && c != '(') take();
      if (branches_.awaits_pattern() && (c == ')' || c == '|')) {
        pattern(c == ')');
      } else {
        end_command(!twice || (c != '&' && c != '|') ? CommandEnd::list
                    : c == '&'                       ? CommandEnd::and_then
                                                     : CommandEnd::or_else);
      }
      if (c == ';' && twice) branches_.end_of_pattern();
    } else if (c == '<' || c == '>') {
      redirection();
    } else if (!array_assignment()) {
      word(command_);
    }
  }

  /// Between [[ and ]], where operators are words.
  bool in_double_brackets() {
    take_key_words();
    const auto is = [&](std::size_t at, std::string_view text) {
      return at < command_.size() && !command_[at].quoted && command_[at].text == text;
    };
    const std::size_t first = is(0, "!") ? 1 : 0;
    return is(first, "[[") && !is(command_.size() - 1, "]]");
  }

  void operator_of_test() {
    ShellWord word{std::string(1, take()), line_};
    if ((word.text == "&" || word.text == "|") && peek() == word.text[0]) word.text += take();
    push(command_, std::move(word));
  }

  bool begins_command() {
    take_key_words();
    return command_.empty();
  }

  /// (( a > b )), as words of a test.
  void arithmetic_test() {
    const int line = line_;
    const std::size_t begin = at_ + 2;
    skip_parentheses();
    const std::string_view inside = text_.substr(begin, std::max(at_, begin + 2) - begin - 2);
    struct Comparison {
      std::string_view sign, word;
    };
    constexpr std::array<Comparison, 6> kComparisons = {
        {{"==", "-eq"}, {"!=", "-ne"}, {"<=", "-le"}, {">=", "-ge"}, {"<", "-lt"}, {">", "-gt"}}};
    ShellWord unknown{{}, line, "an expression"};
    Words test = {{"[", line}, unknown, {"]", line}};
    for (const Comparison& each : kComparisons) {
      const std::size_t sign = inside.find(each.sign);
      if (sign == std::string_view::npos) continue;
      test = {{"[", line},
              sum_of(inside.substr(0, sign), line).front(),
              {std::string(each.word), line},
              sum_of(inside.substr(sign + each.sign.size()), line).front(),
              {"]", line}};
      break;
    }
    for (ShellWord& word : test) push(command_, std::move(word));
  }

  void comment() {
    const int line = line_;
    const std::size_t end = std::min(text_.find('\n', at_), text_.size());
    std::string_view rest = text_.substr(at_, end - at_);
    at_ = end;
    constexpr std::string_view kBatch = "#SBATCH";
    if (!rest.starts_with(kBatch)) return;
    rest.remove_prefix(kBatch.size());
    Words words;
    for (std::size_t i = 0; i < rest.size();) {
      if (is_blank(rest[i])) {
        ++i;
        continue;
      }
      if (rest[i] == '#') break;
      const std::size_t stop = std::min(rest.find_first_of(" \t\r", i), rest.size());
      words.push_back({std::string(rest.substr(i, stop - i)), line});
      i = stop;
    }
    script_.batch_options.push_back(std::move(words));
  }

  /// Its file name is no argument; nor is the number of a stream in front of it.
  void redirection() {
    if (!command_.empty() && command_.back().line == line_ && at_ > 0 &&
        !is_blank(text_[at_ - 1]) && command_.back().text.size() == 1 &&
        command_.back().text[0] >= '0' && command_.back().text[0] <= '9') {
      command_.pop_back();
    }
    while (peek() == '<' || peek() == '>' || peek() == '&') take();
    while (is_blank(peek())) take();
    Words dropped;
    if (peek() != '\n' && peek() != '\0') word(dropped);
  }

  /// NAME=( … ) and NAME+=( … ).
  bool array_assignment() {
    if (!starts_name(peek())) return false;
    const std::string name = name_at(text_.substr(at_));
    std::size_t after = name.size();
    const bool appends = peek(after) == '+';
    if (appends) ++after;
    if (peek(after) != '=' || peek(after + 1) != '(') return false;
    const int line = line_;
    at_ += after + 2;
    Words elements;
    while (!error_ && peek() != ')') {
      if (at_ >= text_.size()) {
        fail("a list that is not closed: " + name + "=(", "a closing parenthesis", line);
        return true;
      }
      if (is_blank(peek()) || peek() == '\n') {
        take();
      } else if (peek() == '\\' && peek(1) == '\n') {
        take();
        take();
      } else if (peek() == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (std::string_view("<>;&|(").find(peek()) != std::string_view::npos) {
        take();
      } else {
        word(elements);
      }
    }
    if (at_ < text_.size()) take();
    take_key_words();
    assign(name, std::move(elements), appends, true);
    assigned_ = true;
    return true;
  }

  // ------------------------------------------------------------------------- words
  /// Appends the word that begins here, or the words that an unquoted variable splits into.
  void word(Words& out) {
    ShellWord current{{}, line_, {}, false};
    bool begun = false;
    while (!error_ && at_ < text_.size()) {
      const char c = peek();
      if (is_blank(c) || std::string_view("\n;&|()<>").find(c) != std::string_view::npos) break;
      begun = true;
      if (c == '\\') {
        take();
        if (at_ < text_.size()) {
          const char next = take();
          if (next != '\n') current.text += next;
        }
      } else if (c == '\'') {
        single_quotes(current);
      } else if (c == '"') {
        double_quotes(current, out);
      } else if (c == '$' || c == '`') {
        append(at_blanks(expansion()), current, out, true);
      } else {
        current.text += take();
      }
      if (current.text.size() > kLongestValue) {
        return fail("a word that grows without bound", "a word", line_);
      }
    }
    if (begun && (!current.text.empty() || current.quoted)) {
      push(out, std::move(current));
    }
    if (!begun) take();
  }

  void push(Words& out, ShellWord word) {
    if (++words_ > kMostWords) return fail("very many words", "a training script", line_);
    out.push_back(std::move(word));
  }

  void single_quotes(ShellWord& current) {
    const int line = line_;
    take();
    current.quoted = true;
    while (at_ < text_.size() && peek() != '\'') current.text += take();
    if (at_ >= text_.size()) return fail("a quote that is not closed", "'", line);
    take();
  }

  void double_quotes(ShellWord& current, Words& out) {
    const int line = line_;
    take();
    current.quoted = true;
    while (!error_ && at_ < text_.size() && peek() != '"') {
      if (peek() == '\\' && at_ + 1 < text_.size()) {
        take();
        if (peek() != '\n') current.text += peek();
        take();
      } else if (peek() == '$' || peek() == '`') {
        const bool all = text_.substr(at_).starts_with("${") &&
                         text_.substr(at_, 80).find("[@]}") < text_.substr(at_, 80).find('"');
        const Words words = expansion();
        if (all) {
          append(words, current, out, true);
        } else {
          append(words, current, out, false);
        }
      } else {
        current.text += take();
      }
    }
    if (error_) return;
    if (at_ >= text_.size()) return fail("a quote that is not closed", "\"", line);
    take();
  }

  /// The words that blanks separate in a value that is used without quotes; one at least.
  static Words at_blanks(const ShellWord& value) {
    Words parts;
    std::string_view rest = value.text;
    while (!rest.empty() || parts.empty()) {
      const std::size_t begin = std::min(rest.find_first_not_of(" \t\n"), rest.size());
      rest.remove_prefix(begin);
      const std::size_t end = std::min(rest.find_first_of(" \t\n"), rest.size());
      parts.push_back({std::string(rest.substr(0, end)), value.line, value.unresolved});
      rest.remove_prefix(end);
    }
    if (parts.size() > 1 && parts.back().text.empty()) parts.pop_back();
    return parts;
  }

  /// The same of several.
  static Words at_blanks(const Words& values) {
    Words parts;
    for (const ShellWord& value : values) {
      for (ShellWord& part : at_blanks(value)) parts.push_back(std::move(part));
    }
    return parts;
  }

  /// Joins what a variable stands for to the current word; `split`: several words stay several.
  void append(const Words& words, ShellWord& current, Words& out, bool split) {
    for (std::size_t i = 0; i < words.size() && !error_; ++i) {
      if (i > 0 && split) {
        push(out, std::move(current));
        current = {{}, line_, {}, false};
      } else if (i > 0) {
        current.text += ' ';
      }
      if (!words[i].unresolved.empty()) current.text += mark_of(words[i].unresolved);
      current.text += words[i].text;
      if (current.text.size() > kLongestValue) {
        return fail("a word that grows without bound", "a word", line_);
      }
    }
  }

  // ------------------------------------------------------------------------- expansions
  Words expansion() {
    const int line = line_;
    if (take() == '`') {
      while (at_ < text_.size() && peek() != '`') take();
      if (at_ < text_.size()) take();
      return {{{}, line, std::string(kCommandOutput)}};
    }
    if (peek() == '(' && peek(1) == '(') return arithmetic();
    if (peek() == '(') {
      skip_parentheses();
      return {{{}, line, std::string(kCommandOutput)}};
    }
    if (peek() == '{') return braces();
    if (!starts_name(peek())) {
      const char which = peek();
      if (at_ < text_.size() && which != '\n' && which != '"') take();
      return {{{}, line, fmt::format("${}", which)}};
    }
    const std::string name = name_at(text_.substr(at_));
    at_ += name.size();
    return words_of(name, line);
  }

  void skip_parentheses() {
    int depth = 0;
    do {
      const char c = take();
      depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    } while (depth > 0 && at_ < text_.size());
  }

  Words arithmetic() {
    const int line = line_;
    const std::size_t begin = at_ + 2;
    skip_parentheses();
    if (at_ < begin + 2) return {{{}, line, "an expression"}};
    return sum_of(text_.substr(begin, at_ - begin - 2), line);
  }

  Words sum_of(std::string_view inside, int line) {
    std::string expression;
    std::string missing;
    for (std::size_t i = 0; i < inside.size();) {
      if (starts_name(inside[i])) {
        const std::string name = name_at(inside.substr(i));
        i += name.size();
        const Words value = words_of(name, line);
        if (value.size() == 1 && value[0].unresolved.empty() && !is_marked(value[0].text)) {
          expression += value[0].text;
        } else {
          missing = name;
          if (value.size() == 1 && is_marked(value[0].text)) {
            missing = without_marks(value[0]).unresolved;
          }
        }
      } else {
        if (std::string_view("${}").find(inside[i]) == std::string_view::npos) {
          expression += inside[i];
        }
        ++i;
      }
    }
    const std::string result = missing.empty() ? arithmetic_value(expression) : "";
    if (result.empty()) return {{{}, line, missing.empty() ? "an expression" : missing}};
    return {{result, line}};
  }

  /// ${NAME}, ${NAME[@]}, ${NAME:-default}, ${NAME:=default}, ${NAME-default}.
  Words braces() {
    const int line = line_;
    take();
    const std::string name = name_at(text_.substr(at_));
    at_ += name.size();
    const std::size_t begin = at_;
    int depth = 1;
    while (at_ < text_.size() && depth > 0) {
      const char c = take();
      depth += c == '{' ? 1 : c == '}' ? -1 : 0;
    }
    if (depth > 0) {
      fail("a ${ that is not closed", "}", line);
      return {};
    }
    std::string_view operation = text_.substr(begin, at_ - begin - 1);
    if (operation.empty() || operation == "[@]" || operation == "[*]") return words_of(name, line);
    if (operation.starts_with(":")) operation.remove_prefix(1);
    const bool has_default = operation.starts_with("-") || operation.starts_with("=");
    if (!has_default) return {{{}, line, name}};
    const auto known = variables_.find(name);
    if (known != variables_.end()) return words_of(name, line);
    const Words value = inner_words(operation.substr(1), line);
    if (operation.starts_with("=")) assign(name, value, false, false);
    return value;
  }

  /// The words of a text inside of an expansion, with its own variables replaced.
  Words inner_words(std::string_view text, int line) {
    if (depth_ >= kDeepestExpansion) {
      fail("expansions inside of each other", "fewer levels", line);
      return {};
    }
    ShellParser inner(text, where_);
    inner.variables_ = variables_;
    inner.depth_ = depth_ + 1;
    inner.line_ = line;
    Words out;
    while (!inner.error_ && inner.at_ < text.size()) {
      if (is_blank(inner.peek()) || inner.peek() == '\n') {
        inner.take();
      } else {
        inner.word(out);
      }
    }
    if (inner.error_) error_ = inner.error_;
    return out;
  }

  Words words_of(const std::string& name, int line) {
    const auto known = variables_.find(name);
    if (known == variables_.end()) {
      const bool argument = !name.empty() && !starts_name(name[0]);  // ${10}
      return {{{}, line, argument ? "$" + name : name}};
    }
    Words out = known->second.values;
    for (ShellWord& word : out) {
      if (known->second.conditional) word.unresolved = name;
    }
    return out;
  }

  // ------------------------------------------------------------------------- commands
  void assign(const std::string& name, Words values, bool appends, bool array) {
    const Truth runs = branches_.runs();
    if (runs == Truth::no) return;
    const bool perhaps = runs == Truth::unknown;
    Variable& variable = variables_[name];
    const auto same = [&] {
      return std::ranges::equal(variable.values, values, {}, &ShellWord::text, &ShellWord::text);
    };
    if (appends) {
      if (!array && !variable.values.empty() && !values.empty()) {
        variable.values.back().text += values.front().text;
        values.clear();
      }
      variable.values.insert(variable.values.end(), values.begin(), values.end());
      if (perhaps) variable.conditional = true;
    } else {
      if (!perhaps) variable.conditional = false;
      if (perhaps && (variable.values.empty() || !same())) variable.conditional = true;
      variable.values = std::move(values);
    }
    variable.array = array;
    std::size_t size = 0;
    for (const ShellWord& word : variable.values) size += word.text.size() + 1;
    if (size > kLongestValue) fail("a variable that grows without bound", "a value", line_);
  }

  /// NAME=value as the only words of a command, or behind export, local, declare.
  bool assignment(const ShellWord& word) {
    const std::string name = name_at(word.text);
    if (name.empty() || !starts_name(name[0])) return false;
    const bool appends = word.text.substr(name.size()).starts_with("+=");
    if (!appends && !word.text.substr(name.size()).starts_with("=")) return false;
    ShellWord value = word;
    value.text = word.text.substr(name.size() + (appends ? 2 : 1));
    // A value in quotes splits where it is used without them.
    Words parts = at_blanks(value);
    assign(name, std::move(parts), appends, appends && value.text.starts_with(" "));
    return true;
  }

  /// The key words in front of a command that is being read.
  void take_key_words() {
    std::size_t count = 0;
    for (; count < command_.size() && !command_[count].quoted; ++count) {
      const std::string& word = command_[count].text;
      if (word == "if") {
        branches_.open_if();
      } else if (word == "for" || word == "while" || word == "until") {
        branches_.open_loop();
      } else if (word == "then") {
        branches_.then_branch();
      } else if (word == "else" || word == "elif") {
        branches_.else_branch(word == "elif");
      } else if (word == "fi" || word == "done" || word == "esac") {
        branches_.close();
      } else if (word == "case" && command_.size() > count + 2) {
        branches_.open_case(without_marks(command_[count + 1]));
        count += 2;  // case WORD in
      } else if (word != "do" && word != "{" && word != "}" && word != "export" &&
                 word != "local" && word != "declare" && word != "readonly" && word != "exec") {
        break;
      }
    }
    command_.erase(command_.begin(), command_.begin() + static_cast<std::ptrdiff_t>(count));
  }

  /// An alternative of case; `last`: with the parenthesis behind it.
  void pattern(bool last) {
    take_key_words();
    for (ShellWord& word : std::exchange(command_, {})) {
      patterns_.push_back(without_marks(std::move(word)));
    }
    if (last) branches_.pattern(std::exchange(patterns_, {}));
  }

  void end_command(CommandEnd end) {
    take_key_words();
    Words words = std::exchange(command_, {});
    const Truth runs = branches_.runs();
    const auto named = std::ranges::find_if(words, [&](const ShellWord& word) {
      const std::string name = name_at(word.text);
      const std::string_view rest = std::string_view(word.text).substr(name.size());
      return name.empty() || !(rest.starts_with("=") || rest.starts_with("+="));
    });
    const bool runs_command = runs != Truth::no && named != words.end();
    if (named == words.end()) {
      for (const ShellWord& word : words) assignment(word);
    } else {
      words.erase(words.begin(), named);
    }
    for (ShellWord& word : words) word = without_marks(std::move(word));
    if (std::exchange(assigned_, false) && words.empty()) words = {{"true", line_}};
    branches_.command(words, end);
    if (runs_command) script_.commands.push_back(std::move(words));
  }

  std::string_view text_;
  std::string where_;
  std::size_t at_ = 0;
  int line_ = 1;
  int depth_ = 0;
  ShellBranches branches_;
  bool assigned_ = false;  ///< the command is the assignment of an array
  Words patterns_;         ///< of a case, before the parenthesis behind them
  std::size_t words_ = 0;
  Words command_;
  std::map<std::string, Variable, std::less<>> variables_;
  ShellScript script_;
  std::optional<Error> error_;
};

}  // namespace

Result<ShellScript> parse_shell(std::string_view text, std::string_view where) {
  return ShellParser(text, where).run();
}

}  // namespace echelon
