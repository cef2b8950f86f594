// RunFailure: the reason that ends a run. Thrown in the threads of a run, reported once at its end.
#pragma once

#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>

#include "core/base/result.hpp"

namespace echelon {

class RunFailure : public std::runtime_error {
 public:
  enum class Kind {
    stopped,        ///< from outside, with SIGTERM, in the middle of a step
    input,          ///< user data found invalid during the run
    environment,    ///< the machine, for instance a full disk
    hang,           ///< a wait exceeded the deadline
    out_of_memory,  ///< reported before the first step
    diverged,       ///< NaN or infinity in loss or gradients
    peer_lost,      ///< another process of the run was lost
    defect,         ///< ranks disagree, or a buffer holds the wrong value
  };
  RunFailure(Kind kind, const std::string& what) : std::runtime_error(what), kind_(kind) {}
  explicit RunFailure(const Error& error)
      : std::runtime_error(error.message()),
        kind_(error.kind == Error::Kind::input ? Kind::input : Kind::environment) {}
  [[nodiscard]] Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

/// Any exception as a RunFailure.
[[nodiscard]] inline RunFailure as_run_failure(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const RunFailure& failure) {
    return failure;
  } catch (const std::bad_alloc&) {
    return {RunFailure::Kind::out_of_memory, "out of memory"};
  } catch (const std::exception& unforeseen) {
    return {RunFailure::Kind::defect, unforeseen.what()};
  }
}

[[nodiscard]] constexpr std::string_view name_of(RunFailure::Kind kind) {
  switch (kind) {
    case RunFailure::Kind::stopped: return "stopped";
    case RunFailure::Kind::input: return "wrong input";
    case RunFailure::Kind::environment: return "environment";
    case RunFailure::Kind::hang: return "hang";
    case RunFailure::Kind::out_of_memory: return "out of memory";
    case RunFailure::Kind::diverged: return "diverged";
    case RunFailure::Kind::peer_lost: return "peer lost";
    case RunFailure::Kind::defect: return "defect";
  }
  return "?";
}

/// Exit code of the program; docs/run.md lists them.
[[nodiscard]] constexpr int exit_code_of(RunFailure::Kind kind) {
  switch (kind) {
    case RunFailure::Kind::stopped: return 143;  // 128 + SIGTERM, as shells have it
    case RunFailure::Kind::input: return 2;
    case RunFailure::Kind::environment: return 3;
    case RunFailure::Kind::hang: return 4;
    case RunFailure::Kind::out_of_memory: return 5;
    case RunFailure::Kind::diverged: return 6;
    case RunFailure::Kind::peer_lost: return 7;
    case RunFailure::Kind::defect: return 70;
  }
  return 70;
}

}  // namespace echelon
