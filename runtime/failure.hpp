// RunFailure: what ends a run. Thrown in the threads of a run, told once at its end.
#pragma once

#include <stdexcept>
#include <string>

namespace echelon {

/// The exit codes of docs/cli.md for a run that failed are those of the kinds.
class RunFailure : public std::runtime_error {
 public:
  enum class Kind {
    stopped,        ///< the user asked (Ctrl-C)
    hang,           ///< somebody waited longer than the deadline (4)
    out_of_memory,  ///< (5)
    diverged,       ///< NaN or infinity in loss or gradients (6)
    peer_lost,      ///< another process of the run is gone (7)
    defect,         ///< ranks disagree, or an instruction finds the wrong thing in a buffer (70)
  };
  RunFailure(Kind kind, const std::string& what) : std::runtime_error(what), kind_(kind) {}
  [[nodiscard]] Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

}  // namespace echelon
