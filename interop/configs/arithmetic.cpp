// Sums of shell scripts: $((TP * PP)).
#include <cstdint>
#include <optional>

#include "interop/configs/shell_words.hpp"

namespace echelon {

namespace {

/// Recursive descent over an expression; nothing once it met what it does not know.
class Arithmetic {
 public:
  explicit Arithmetic(std::string_view text) : text_(text) {}

  std::optional<std::int64_t> value() {
    const std::optional<std::int64_t> all = sum(0);
    skip();
    return at_ == text_.size() ? all : std::nullopt;
  }

 private:
  static constexpr int kDeepest = 32;

  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }
  bool takes(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  std::optional<std::int64_t> sum(int depth) {
    std::optional<std::int64_t> left = product(depth);
    while (left) {
      const bool plus = takes('+');
      if (!plus && !takes('-')) break;
      const std::optional<std::int64_t> right = product(depth);
      std::int64_t result = 0;
      if (!right || (plus ? __builtin_add_overflow(*left, *right, &result)
                          : __builtin_sub_overflow(*left, *right, &result))) {
        return std::nullopt;
      }
      left = result;
    }
    return left;
  }

  std::optional<std::int64_t> product(int depth) {
    std::optional<std::int64_t> left = number(depth);
    while (left) {
      const char op = takes('*') ? '*' : takes('/') ? '/' : takes('%') ? '%' : '\0';
      if (op == '\0') break;
      const std::optional<std::int64_t> right = number(depth);
      if (!right || (op != '*' && *right <= 0)) return std::nullopt;
      std::int64_t result = 0;
      if (op == '*' && __builtin_mul_overflow(*left, *right, &result)) return std::nullopt;
      if (op == '/') result = *left / *right;
      if (op == '%') result = *left % *right;
      left = result;
    }
    return left;
  }

  std::optional<std::int64_t> number(int depth) {
    if (takes('(')) {
      if (depth >= kDeepest) return std::nullopt;
      const std::optional<std::int64_t> inner = sum(depth + 1);
      return inner && takes(')') ? inner : std::nullopt;
    }
    skip();
    const std::size_t begin = at_;
    std::int64_t value = 0;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
      if (__builtin_mul_overflow(value, 10, &value) ||
          __builtin_add_overflow(value, text_[at_] - '0', &value)) {
        return std::nullopt;
      }
      ++at_;
    }
    return at_ > begin ? std::optional(value) : std::nullopt;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

std::string arithmetic_value(std::string_view expression) {
  const std::optional<std::int64_t> value = Arithmetic(expression).value();
  return value ? std::to_string(*value) : std::string();
}

}  // namespace echelon
