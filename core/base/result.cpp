#include "core/base/result.hpp"

#include <cstdio>
#include <cstdlib>

namespace echelon {

std::string Error::message() const {
  std::string text;
  const auto add = [&text](std::string_view separator, std::string_view part) {
    if (part.empty()) return;
    if (!text.empty()) text += separator;
    text += part;
  };
  add("", where);
  add(": ", found);
  add("; expected ", expected);
  add("; ", hint);
  return text;
}

Error input_error(std::string where, std::string found, std::string expected, std::string hint) {
  return {Error::Kind::input, std::move(found), std::move(expected), std::move(hint),
          std::move(where)};
}

Error environment_error(std::string where, std::string found, std::string hint) {
  return {Error::Kind::environment, std::move(found), {}, std::move(hint), std::move(where)};
}

namespace detail {
void contract_broken(const char* condition, std::string_view message, const char* file, int line) {
  std::fprintf(stderr, "echelon: internal error at %s:%d: %.*s (violated: %s)\n", file, line,
               static_cast<int>(message.size()), message.data(), condition);
  std::abort();
}
}  // namespace detail

}  // namespace echelon
