// Errors the user can fix are values: found, expected, what to do, where.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/expects.hpp"

namespace echelon {

/// Why a request of the user failed, and how to fix it.
struct Error {
  enum class Kind {
    input,        ///< the user's input is wrong (exit code 2)
    environment,  ///< something is missing on the machine: file, permission, library (exit code 3)
  };
  Kind kind = Kind::input;
  std::string found;     ///< the actual input: "unknown model 'lama-7b'"
  std::string expected;  ///< the valid input: "a catalog name, or a path to a config.json"
  std::string hint;      ///< what to do: "did you mean 'llama-7b'?"
  std::string where;     ///< flag, file, JSON pointer: "--model", "my.json at /node/gpus"

  /// One line: "WHERE: FOUND; expected EXPECTED; HINT". Empty parts are left out.
  [[nodiscard]] std::string message() const;
};

/// An input error; its parts in the order of message().
[[nodiscard]] Error input_error(std::string where, std::string found, std::string expected,
                                std::string hint = {});
/// An environment error (an unreadable file, a full disk ...).
[[nodiscard]] Error environment_error(std::string where, std::string found, std::string hint = {});

/// A value of type T, or the Error that explains its absence.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}      // NOLINT: implicit for `return value;`
  Result(Error error) : state_(std::move(error)) {}  // NOLINT

  [[nodiscard]] bool ok() const { return std::holds_alternative<T>(state_); }
  explicit operator bool() const { return ok(); }
  [[nodiscard]] const T& value() const& {
    check();
    return std::get<T>(state_);
  }
  [[nodiscard]] T& value() & {
    check();
    return std::get<T>(state_);
  }
  [[nodiscard]] T&& value() && {
    check();
    return std::get<T>(std::move(state_));
  }
  const T& operator*() const& { return value(); }
  T& operator*() & { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  const T* operator->() const { return &value(); }
  T* operator->() { return &value(); }
  [[nodiscard]] const Error& error() const {
    EXPECTS(!ok(), "Result::error() of a value");
    return std::get<Error>(state_);
  }

 private:
  void check() const { EXPECTS(ok(), std::get<Error>(state_).message()); }
  std::variant<T, Error> state_;
};

/// A result that carries nothing but success.
struct Done {};
using Status = Result<Done>;

}  // namespace echelon
