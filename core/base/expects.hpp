// EXPECTS: a bug in this program stops it and prints the violated condition. Always on.
#pragma once

#include <string_view>

namespace echelon::detail {
[[noreturn]] void contract_broken(const char* condition, std::string_view message, const char* file,
                                  int line);
}  // namespace echelon::detail

#define EXPECTS(condition, message) \
  (static_cast<bool>(condition)     \
       ? static_cast<void>(0)       \
       : ::echelon::detail::contract_broken(#condition, (message), __FILE__, __LINE__))
