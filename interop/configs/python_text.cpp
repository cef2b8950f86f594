// Python recipes in and out: "config.section.option = value" in a function. Nothing is executed.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "core/base/text.hpp"
#include "interop/configs/format.hpp"
#include "interop/configs/shell_words.hpp"

namespace echelon {

namespace {

constexpr std::string_view kImport = "import";
constexpr std::string_view kRegistry = "model_registry";  // in the module above the recipes'
constexpr std::string_view kPolicies = "torchtitan.distributed.activation_checkpoint";

bool in_python_path(char c) {
  return (lower_case(c) >= 'a' && lower_case(c) <= 'z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.';
}

std::string_view without_blanks(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
}

bool is_python_path(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, in_python_path);
}

/// A statement without its comments, over several lines where brackets are open.
struct PythonStatement {
  std::string text;
  int line = 1;
};

/// Comments and texts in three quotes are left out.
class PythonStatements {
 public:
  PythonStatements(std::string_view text, std::string_view where) : text_(text), where_(where) {}

  Result<std::vector<PythonStatement>> run() {
    for (; at_ < text_.size() && !error_; ++at_) step();
    if (depth_ > 0) fail("a bracket that is not closed", "its end", open_line_);
    if (quote_ != '\0') fail("a quote that is not closed", std::string(1, quote_), line_);
    if (error_) return *error_;
    return std::move(out_);
  }

 private:
  void fail(std::string found, std::string expected, int line) {
    if (error_) return;
    error_ =
        input_error(fmt::format("{} line {}", where_, line), std::move(found), std::move(expected));
  }

  void step() {
    const char c = text_[at_];
    if (c == '\n') ++line_;
    if (quote_ != '\0') {
      if (c == '\n') return fail("a quote that is not closed", std::string(1, quote_), line_ - 1);
      if (c == quote_) quote_ = '\0';
    } else if (c == '#') {
      at_ = std::min(text_.find('\n', at_), text_.size()) - 1;
      return;
    } else if (const std::string_view three = text_.substr(at_, 3);
               three == "\"\"\"" || three == "'''") {
      return skip_text(three);
    } else if (c == '\'' || c == '"') {
      quote_ = c;
    } else if (std::string_view("([{").find(c) != std::string_view::npos) {
      if (depth_++ == 0) open_line_ = line_;
    } else if (std::string_view(")]}").find(c) != std::string_view::npos) {
      depth_ = std::max(0, depth_ - 1);
    } else if (depth_ == 0 && (c == '\n' || c == ';')) {
      if (out_.size() >= kMostConfigValues) return fail("very many statements", "a recipe", line_);
      out_.push_back({{}, line_});
      return;
    }
    out_.back().text += c;
  }

  void skip_text(std::string_view quotes) {
    const std::size_t end = text_.find(quotes, at_ + 3);
    if (end == std::string_view::npos) {
      return fail("a text that is not closed", std::string(quotes), line_);
    }
    line_ += static_cast<int>(std::ranges::count(text_.substr(at_, end - at_), '\n'));
    at_ = end + 2;
  }

  std::string_view text_, where_;
  std::size_t at_ = 0;
  int line_ = 1, open_line_ = 1, depth_ = 0;
  char quote_ = '\0';
  std::vector<PythonStatement> out_{1};
  std::optional<Error> error_;
};

/// Literals, lists of them, products of numbers; anything else as it stands.
class PythonValue {
 public:
  explicit PythonValue(std::string_view text) : text_(text) {}

  ConfigValue read() { return value(0); }

 private:
  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == ',')) {
      ++at_;
    }
  }

  ConfigValue value(int depth) {
    skip();
    if (at_ < text_.size() && text_[at_] == '[' && depth < kDeepestConfig) return list(depth);
    if (at_ < text_.size() && (text_[at_] == '"' || text_[at_] == '\'')) {
      const std::size_t end = std::min(text_.find(text_[at_], at_ + 1), text_.size());
      ConfigValue out = quoted(std::string(text_.substr(at_ + 1, end - at_ - 1)));
      at_ = std::min(end + 1, text_.size());
      return out;
    }
    const std::size_t end =
        depth == 0 ? text_.size() : std::min(text_.find_first_of(",]", at_), text_.size());
    const std::string word(without_blanks(text_.substr(at_, end - at_)));
    at_ = end;
    if (word == "True" || word == "False") return scalar(lower_case(word));
    if (word == "None") return scalar("none");
    const std::string number = arithmetic_value(word);
    return scalar(number.empty() ? word : number);
  }

  ConfigValue list(int depth) {
    ConfigValue out;
    out.is_list = true;
    ++at_;
    for (skip(); at_ < text_.size() && text_[at_] != ']'; skip()) {
      const std::size_t before = at_;
      out.items.push_back(value(depth + 1));
      if (at_ == before) ++at_;
    }
    if (at_ < text_.size()) ++at_;
    return out;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

/// Names that stand for the configuration or a section of it: "p" for "parallelism".
using Sections = std::map<std::string, std::string, std::less<>>;

/// "p.degree" is "parallelism.degree"; nothing for the path of something else.
std::optional<std::string> section_path(std::string_view path, const Sections& sections) {
  const std::size_t dot = path.find('.');
  const auto known = sections.find(path.substr(0, dot));
  if (known == sections.end()) return std::nullopt;
  if (dot == std::string_view::npos) return known->second;
  return known->second + (known->second.empty() ? "" : ".") + std::string(path.substr(dot + 1));
}

void read_import(std::string_view text, int line, ConfigDocument& document) {
  constexpr std::string_view kFrom = "from ", kWord = " import ";
  const std::size_t word = text.find(kWord);
  if (!text.starts_with(kFrom) || word == std::string_view::npos) return;
  const std::string_view module = without_blanks(text.substr(kFrom.size(), word - kFrom.size()));
  const std::string_view name = without_blanks(text.substr(word + kWord.size()));
  if (!module.ends_with("config_registry") || !is_python_path(name)) return;
  document.entries.push_back(
      {std::string(kImport), scalar(fmt::format("{}.{}", module, name)), line});
}

void read_assignment(const PythonStatement& statement, Sections& sections,
                     ConfigDocument& document) {
  const std::size_t sign = statement.text.find('=');
  if (sign == std::string::npos) return;
  const std::string_view left = without_blanks(std::string_view(statement.text).substr(0, sign));
  const std::string_view right = without_blanks(std::string_view(statement.text).substr(sign + 1));
  if (!is_python_path(left) || right.empty()) return;
  const ConfigEntry* import = document.find(kImport);
  const auto called = [&](const std::string& function) {
    return right == function.substr(function.rfind('.') + 1) + "()";
  };
  if (import != nullptr && called(import->value.text)) {
    sections.insert_or_assign(std::string(left), "");
  } else if (const auto section =
                 is_python_path(right) ? section_path(right, sections) : std::nullopt) {
    sections.insert_or_assign(std::string(left), *section);
  } else if (const auto key = section_path(left, sections); key && !key->empty()) {
    document.entries.push_back({*key, PythonValue(right).read(), statement.line});
  }
}

std::string python_literal(const ConfigValue& value) {
  if (value.is_list) {
    std::string out = "[";
    for (const ConfigValue& item : value.items) {
      out += (&item == &value.items.front() ? "" : ", ") + python_literal(item);
    }
    return out + "]";
  }
  if (value.is_string) return "\"" + value.text + "\"";
  if (value.text == "true") return "True";
  if (value.text == "false") return "False";
  return value.text == "none" ? "None" : value.text;
}

}  // namespace

Result<ConfigDocument> read_python(std::string_view text, std::string_view where) {
  const Result<std::vector<PythonStatement>> statements = PythonStatements(text, where).run();
  if (!statements) return statements.error();
  ConfigDocument document{std::string(where), {}};
  Sections sections;
  for (const PythonStatement& statement : *statements) {
    read_import(without_blanks(statement.text), statement.line, document);
    read_assignment(statement, sections, document);
  }
  return document;
}

std::string write_python(const ConfigDocument& document) {
  std::string imports, body, function, models(kFillIn);
  for (const ConfigEntry& entry : document.entries) {
    const std::string text = python_literal(entry.value);
    if (entry.key == kImport) {
      const std::size_t dot = text.rfind('.');
      function = text.substr(dot == std::string::npos ? 0 : dot + 1);
      if (dot != std::string::npos) {
        imports += fmt::format("from {} import {}\n", text.substr(0, dot), function);
        models = text.substr(0, text.rfind('.', dot - 1));
      }
      continue;
    }
    const std::size_t policy = text.find(".Config()");
    if (policy != std::string::npos) {
      imports += fmt::format("from {} import {}\n", kPolicies, text.substr(0, policy));
    }
    if (text.starts_with(kRegistry)) {
      imports += fmt::format("from {} import {}\n", models, kRegistry);
    }
    body += fmt::format("    config.{} = {}\n", entry.key, text);
  }
  return fmt::format("{}\n\ndef plan():\n    config = {}()\n{}    return config\n", imports,
                     function, body);
}

}  // namespace echelon
