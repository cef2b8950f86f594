// Core usage of a run and of other programs on this machine, while steps are measured.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <set>
#include <span>
#include <string_view>

#include "core/base/units.hpp"

namespace echelon {

/// Time on cores since some beginning.
struct CoreTime {
  Seconds at;   ///< by the steady clock
  Seconds all;  ///< of all programs, and stolen by hypervisors, on the cores this process may use
  Seconds own;  ///< of this process
  int cores = 0;
};

/// Sums the lines "cpuN user nice system idle iowait irq softirq steal …" of /proc/stat for the
/// given cores: all except idle and iowait. Nothing if a core is missing or a line has another
/// form. Source: proc(5); guest times are part of user's.
[[nodiscard]] std::optional<Seconds> busy_time(std::string_view proc_stat,
                                               const std::set<int>& cores, Seconds tick);

/// Nothing if the system does not report it.
[[nodiscard]] std::optional<CoreTime> core_time();

/// The usage that one process measured between two of these times, as numbers to send to ranks.
struct ProcessUse {
  double machine = 0;  ///< a number of the machine; 0: not measured
  double seconds = 0;
  double all = 0;  ///< cores in use on average
  double own = 0;
  double cores = 0;
  static constexpr std::size_t kNumbers = 5;
  [[nodiscard]] std::array<double, kNumbers> numbers() const {
    return {machine, seconds, all, own, cores};
  }
  [[nodiscard]] static ProcessUse from(const double* numbers);
};

/// Nothing where the time between is too short for the system's ticks, a hundredth of a second
/// each.
[[nodiscard]] ProcessUse process_use(const std::optional<CoreTime>& before,
                                     const std::optional<CoreTime>& after);

/// Cores in use on average, on the machine of the run where other programs use most.
struct CoreUse {
  double own = 0;  ///< of all processes of the run there
  double others = 0;
  int cores = 0;
  Seconds processor_time;  ///< of all processes of the run everywhere
};
[[nodiscard]] std::optional<CoreUse> core_use(std::span<const ProcessUse> processes);

}  // namespace echelon
