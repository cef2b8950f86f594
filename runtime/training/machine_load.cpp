#include "runtime/training/machine_load.hpp"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>

#include "core/base/content_hash.hpp"
#include "runtime/threads/clock.hpp"

namespace echelon {
namespace {

std::set<int> usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::set<int> out;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return out;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(static_cast<std::size_t>(core), &set)) out.insert(core);
  }
  return out;
}

Seconds of(const timeval& time) {
  return Seconds{static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec)};
}

/// Not 0; processes of one machine have the same.
double number_of_this_machine() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  constexpr std::size_t kDigits = 12;  // of 16: a double holds them
  const std::string digits = content_hash(name.data() + boot).substr(0, kDigits);
  return 1 + static_cast<double>(std::stoull(digits, nullptr, 16));
}

/// In ticks; nothing where the numbers are not there.
std::optional<double> busy_ticks(std::istringstream& line) {
  constexpr int kNumbers = 8;  // user nice system idle iowait irq softirq steal
  double sum = 0;
  for (int k = 0; k < kNumbers; ++k) {
    double ticks = 0;
    if (!(line >> ticks)) return std::nullopt;
    const bool idle = k == 3 || k == 4;
    if (!idle) sum += ticks;
  }
  return sum;
}

}  // namespace

std::optional<Seconds> busy_time(std::string_view proc_stat, const std::set<int>& cores,
                                 Seconds tick) {
  std::istringstream text{std::string(proc_stat)};
  std::set<int> missing = cores;
  double ticks = 0;
  for (std::string each; std::getline(text, each);) {
    if (!each.starts_with("cpu") || each.starts_with("cpu ")) continue;
    std::istringstream line(each.substr(3));
    int core = 0;
    if (!(line >> core) || missing.erase(core) == 0) continue;
    const std::optional<double> busy = busy_ticks(line);
    if (!busy) return std::nullopt;
    ticks += *busy;
  }
  if (cores.empty() || !missing.empty()) return std::nullopt;
  return ticks * tick;
}

std::optional<CoreTime> core_time() {
  std::ifstream file("/proc/stat");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const std::set<int> cores = usable_cores();
  const long ticks_per_second = sysconf(_SC_CLK_TCK);
  if (ticks_per_second <= 0) return std::nullopt;
  const std::optional<Seconds> all =
      busy_time(text, cores, Seconds{1.0 / static_cast<double>(ticks_per_second)});
  rusage usage{};
  if (!all || getrusage(RUSAGE_SELF, &usage) != 0) return std::nullopt;
  return CoreTime{.at = steady_now(),
                  .all = *all,
                  .own = of(usage.ru_utime) + of(usage.ru_stime),
                  .cores = static_cast<int>(cores.size())};
}

ProcessUse ProcessUse::from(const double* numbers) {
  return {.machine = numbers[0],
          .seconds = numbers[1],
          .all = numbers[2],
          .own = numbers[3],
          .cores = numbers[4]};
}

ProcessUse process_use(const std::optional<CoreTime>& before,
                       const std::optional<CoreTime>& after) {
  constexpr Seconds kShortest{0.1};
  if (!before || !after || after->at - before->at < kShortest) return {};
  const Seconds time = after->at - before->at;
  return {.machine = number_of_this_machine(),
          .seconds = time.in(kSecond),
          .all = (after->all - before->all) / time,
          .own = (after->own - before->own) / time,
          .cores = static_cast<double>(after->cores)};
}

std::optional<CoreUse> core_use(std::span<const ProcessUse> processes) {
  std::map<double, CoreUse> machines;
  std::map<double, double> all;
  Seconds spent;
  for (const ProcessUse& each : processes) {
    if (each.machine == 0) continue;
    CoreUse& use = machines[each.machine];
    use.own += each.own;
    use.cores = std::max(use.cores, static_cast<int>(each.cores));
    all[each.machine] = std::max(all[each.machine], each.all);
    spent += Seconds{each.own * each.seconds};
  }
  std::optional<CoreUse> busiest;
  for (auto& [machine, use] : machines) {
    use.others = std::max(0.0, all[machine] - use.own);
    if (!busiest || use.others > busiest->others) busiest = use;
  }
  if (busiest) busiest->processor_time = spent;
  return busiest;
}

}  // namespace echelon
