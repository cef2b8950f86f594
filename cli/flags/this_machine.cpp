#include "cli/flags/this_machine.hpp"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>

#include "cli/flags/settings.hpp"

namespace echelon::cli {

namespace {

/// The number in a file that holds one; nothing where there is no such file or number.
std::optional<double> number_in(const char* path) {
  std::ifstream file(path);
  double number = 0;
  if (file >> number && number > 0) return number;
  return std::nullopt;
}

/// The value of "KEY :" in the first such line of /proc/cpuinfo.
std::string of_cpu(std::string_view key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (line.starts_with(key) && colon != std::string::npos) return line.substr(colon + 1) + " ";
  }
  return {};
}

/// The clock the name of a processor ends with: "... @ 2.60GHz".
std::optional<double> clock_in(const std::string& name) {
  const std::size_t mark = name.find('@');
  if (mark == std::string::npos) return std::nullopt;
  std::istringstream rest(name.substr(mark + 1));
  double ghz = 0;
  if (rest >> ghz && ghz > 0.1 && ghz < 10) return ghz;
  return std::nullopt;
}

Bytes memory_of_host() {
  const double all =
      static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  const std::optional<double> limit = number_in("/sys/fs/cgroup/memory.max");
  return Bytes{limit ? std::min(all, *limit) : all};
}

}  // namespace

HostFacts host_facts() {
  HostFacts host;
  host.cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  host.memory = memory_of_host();
  constexpr double kKilohertz = 1e-6;  // in GHz
  constexpr double kUsualClock = 2.5;
  const auto most = number_in("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq");
  const auto named = clock_in(of_cpu("model name"));
  host.clock_ghz = most ? *most * kKilohertz : named ? *named : kUsualClock;
  host.clock_source = most    ? "cpufreq/cpuinfo_max_freq"
                      : named ? "/proc/cpuinfo, model name"
                              : "assumed: not reported by the system";
  const std::string features = of_cpu("flags");
  const auto has = [&](const char* name) {
    return features.find(std::string(" ") + name + " ") != std::string::npos;
  };
  if (has("avx512f")) {
    host.flops_per_cycle = 64;
    host.simd_source = "assumed: two fused multiply-adds of 16 lanes, for AVX-512";
  } else if (has("avx2")) {
    host.flops_per_cycle = 32;
    host.simd_source = "assumed: two fused multiply-adds of 8 lanes, for AVX2";
  } else {
    host.flops_per_cycle = 16;
    host.simd_source = "assumed: two fused multiply-adds of 4 lanes";
  }
  return host;
}

Result<ClusterTopology> load_cluster(const std::string& name, std::int64_t gpus) {
  if (name == kThisMachine) return this_machine(host_facts(), gpus);
  if (name != kThisMachineGpus) return ClusterTopology::load(name, gpus);
  const std::string path = description_next_to(gpus_calibration_file());
  std::error_code ignored;
  if (path.empty() || !std::filesystem::exists(path, ignored)) {
    return environment_error("--cluster", "the GPUs of this machine are not calibrated",
                             "plan calibrate --backend cuda");
  }
  return ClusterTopology::load(path, gpus);
}

namespace {

std::string beside_settings(const char* name) {
  const std::string beside = user_file();
  if (beside.empty()) return {};
  return (std::filesystem::path(beside).parent_path() / name).string();
}

}  // namespace

std::string machine_calibration_file() { return beside_settings("this-machine.json"); }
std::string gpus_calibration_file() { return beside_settings("this-machine-gpus.json"); }

std::string description_next_to(const std::string& calibration) {
  if (calibration.empty()) return {};
  return std::filesystem::path(calibration).replace_extension(".cluster.json").string();
}

}  // namespace echelon::cli
