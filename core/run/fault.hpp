// InjectedFault: a fault that a run commits on demand (`plan run --inject`), to see how it is
// reported.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"

namespace echelon {

enum class FaultKind : std::uint8_t {
  stop,       ///< the rank stops, as on SIGSTOP or a disk that does not answer
  kill,       ///< its process gets SIGKILL
  slow,       ///< from that step on, each of its forwards takes kSlowDown longer
  nan,        ///< its gradients become NaN in that step
  corrupt,    ///< a byte of the next message it sends changes on the way (--launcher env)
  disk_full,  ///< its part of the next checkpoint finds a full disk
  skip,       ///< it leaves out the norm's all-reduce
  mismatch,   ///< it calls that all-reduce with another size
  oom         ///< an allocation of its forward fails
};
inline constexpr std::array<std::string_view, 9> kFaultNames = {
    "stop", "kill", "slow", "nan", "corrupt", "disk-full", "skip", "mismatch", "oom"};
[[nodiscard]] constexpr std::string_view name_of(FaultKind kind) {
  return kFaultNames[static_cast<std::size_t>(kind)];
}

struct InjectedFault {
  FaultKind kind = FaultKind::stop;
  int rank = 0;
  std::int64_t step = 0;  ///< counted as in the report
  bool operator==(const InjectedFault&) const = default;
};
/// "stop@2:5,slow@0:1"
[[nodiscard]] std::string to_text(const std::vector<InjectedFault>& faults);
/// The reverse; "" has none.
[[nodiscard]] Result<std::vector<InjectedFault>> parse_faults(std::string_view text,
                                                              const std::string& where);

}  // namespace echelon
