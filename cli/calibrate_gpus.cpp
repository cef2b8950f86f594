// plan calibrate --backend cuda: rates of this machine's GPUs, and a description of how they are
// wired.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "cli/calibrate.hpp"
#include "cli/request.hpp"
#include "cli/scratch.hpp"
#include "cli/this_machine.hpp"
#include "core/base/files.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "costmodel/calibration/fit/gpu.hpp"
#include "report/calibrate.hpp"
#include "topologies/import/wiring.hpp"

namespace echelon::cli {

namespace {

constexpr std::int64_t kLongestWiring = 16 << 20;

/// What nvidia-smi prints, or "" where it is not or fails.
std::string told_by_smi() {
  const std::string smi = in_path("nvidia-smi");
  if (smi.empty()) return {};
  std::string text;
  const Result<Ended> ended =
      run_child({.words = {smi, "topo", "-m"}, .events = kEventsOfProcesses},
                [&](std::string_view line) { text += std::string(line) + "\n"; });
  return ended && ended->exit_code == 0 ? text : "";
}

/// "400 Gb/sec (4X NDR)", as the kernel tells it of a card's first port.
void add_rates(NodeWiring& wiring) {
  constexpr double kGigabit = 1e9 / 8;
  for (NodeWiring::Nic& nic : wiring.nics) {
    std::ifstream file("/sys/class/infiniband/" + nic.name + "/ports/1/rate");
    double gigabits = 0;
    if (file >> gigabits && gigabits > 0) nic.rate = BytesPerSecond{gigabits * kGigabit};
  }
}

/// By NCCL, which looked at all of it, else by nvidia-smi; else PCIe alone is assumed. A single GPU
/// has nothing to be wired to.
NodeWiring wiring_here(int gpus, const std::string& dump) {
  NodeWiring plain;
  plain.gpus.resize(static_cast<std::size_t>(gpus));
  plain.source = "CUDA";
  if (gpus == 1) return plain;
  const Result<std::string> dumped = read_file(dump, kLongestWiring);
  for (const std::string& text : {dumped ? *dumped : std::string(), told_by_smi()}) {
    if (text.empty()) continue;
    Result<NodeWiring> wiring = parse_wiring(text, "this machine");
    if (!wiring || wiring->gpus.size() != plain.gpus.size()) continue;
    add_rates(*wiring);
    return *std::move(wiring);
  }
  plain.source = "assumed: neither NCCL nor nvidia-smi told how GPUs are wired";
  return plain;
}

std::optional<BytesPerSecond> fastest_copy(const std::vector<Measurement>& all) {
  std::optional<BytesPerSecond> best;
  for (const Measurement& one : all) {
    if (!one.what.starts_with("copy ") || one.seconds <= Seconds{}) continue;
    const BytesPerSecond rate = Bytes{static_cast<double>(one.shape.at(0))} / one.seconds;
    best = std::max(best.value_or(rate), rate);
  }
  return best;
}

struct MeasuredGpus {
  Measurements measurements;
  std::string description;
};

Result<MeasuredGpus> measured_gpus(const Invocation& call) {
  const Result<Scratch> scratch = Scratch::make();
  if (!scratch) return scratch.error();
  const std::string path = scratch->file("measurements.json");
  const std::string dump = scratch->file("topology.xml");
  RunProgress progress(!call.quiet && !call.json);
  const Child child{.words = {"/usr/bin/env", "NCCL_TOPO_DUMP_FILE=" + dump,
                              own_folder() + "/plan-run", "--measure-gpus", path}};
  Result<Measurements> all = measured_by(child, path, progress);
  if (!all) return all.error();
  if (!all->gpu) {
    return environment_error("plan-run", "measurements without a GPU", "build both again");
  }
  WiredMachine machine;
  machine.name = kThisMachineGpus;
  machine.summary = fmt::format("{} x {} of this computer", all->gpu->gpus, all->gpu->name);
  machine.gpu = *all->gpu;
  machine.wiring = wiring_here(all->gpu->gpus, dump);
  machine.measured_copies = fastest_copy(all->all);
  machine.cpu_memory = host_facts().memory;
  Result<std::string> description = description_of(machine);
  if (!description) return description.error();
  return MeasuredGpus{*std::move(all), *std::move(description)};
}

}  // namespace

Result<Outcome> calibrate_gpus(const Invocation& call) {
  if (const Setting* launcher = call.settings.find("launcher");
      launcher != nullptr && launcher->value != "local") {
    return input_error(launcher->where, "'" + launcher->value.substr(0, 40) + "'", "local",
                       "GPUs are measured by threads of one process");
  }
  const Result<std::string> target = calibration_target(call, gpus_calibration_file());
  if (!target) return target.error();
  const Result<MeasuredGpus> found = measured_gpus(call);
  if (!found) return found.error();
  const Measurements& all = found->measurements;
  const Result<ClusterTopology> cluster =
      ClusterTopology::parse(found->description, kThisMachineGpus, 0);
  if (!cluster) return cluster.error();
  const Result<Framework> stack = find_framework(kExecutingFramework);
  if (!stack) return stack.error();
  const Result<Calibration> prior = pick_calibration(cluster->gpu(), *stack);
  if (!prior) return prior.error();
  const Calibration rates = calibrated_gpus(all, *cluster, *prior, how_measured(" --backend cuda"));
  if (*target == "-") return Outcome{calibration_to_json(rates)};
  const std::string beside = description_beside(*target);
  for (const auto& [path, text] :
       {std::pair(*target, calibration_to_json(rates)), std::pair(beside, found->description)}) {
    if (const Status written = write_file(path, text); !written) {
      return at({path, "--output"}, written.error());
    }
  }
  if (call.json) return Outcome{measurements_to_json(all)};
  if (call.quiet) return Outcome{};
  const bool usual = *target == gpus_calibration_file();
  return Outcome{
      calibrate_text(all, {{all.gpu->name, rates}}, call.style) +
      fmt::format("\nWritten to {} and {}; --cluster {} plans with them.\n", *target, beside,
                  usual ? std::string(kThisMachineGpus) : beside + " --calibration " + *target)};
}

}  // namespace echelon::cli
