// plan calibrate --backend cuda: rates of this machine's GPUs, and a description of how they are
// wired.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "cli/commands/calibrate.hpp"
#include "cli/flags/request.hpp"
#include "cli/flags/this_machine.hpp"
#include "cli/system/temp_dir.hpp"
#include "core/base/files.hpp"
#include "core/base/text.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "costmodel/calibration/fit/gpu.hpp"
#include "report/calibrate.hpp"
#include "topologies/import/wiring.hpp"

namespace echelon::cli {

namespace {

constexpr std::int64_t kLongestWiring = 16 << 20;

/// The output of nvidia-smi; "" if it is missing or fails.
std::string output_of_smi() {
  const std::string smi = in_path("nvidia-smi");
  if (smi.empty()) return {};
  std::string text;
  const Result<ExitStatus> exit_status =
      run_subprocess({.words = {smi, "topo", "-m"}, .events = kEventsOfProcesses},
                     [&](std::string_view line) { text += std::string(line) + "\n"; });
  return exit_status && exit_status->exit_code == 0 ? text : "";
}

/// "400 Gb/sec (4X NDR)", as the kernel reports it for a NIC's first port.
void add_rates(NodeWiring& wiring) {
  constexpr double kGigabit = 1e9 / 8;
  for (NodeWiring::Nic& nic : wiring.nics) {
    std::ifstream file("/sys/class/infiniband/" + nic.name + "/ports/1/rate");
    double gigabits = 0;
    if (file >> gigabits && gigabits > 0) nic.rate = BytesPerSecond{gigabits * kGigabit};
  }
}

/// From NCCL's dump, else from nvidia-smi; else only PCIe is assumed. A single GPU has no wiring.
NodeWiring wiring_here(int gpus, const std::string& dump) {
  NodeWiring plain;
  plain.gpus.resize(static_cast<std::size_t>(gpus));
  plain.source = "CUDA";
  if (gpus == 1) return plain;
  const Result<std::string> dumped = read_file(dump, kLongestWiring);
  for (const std::string& text : {dumped ? *dumped : std::string(), output_of_smi()}) {
    if (text.empty()) continue;
    Result<NodeWiring> wiring = parse_wiring(text, "this machine");
    if (!wiring || wiring->gpus.size() != plain.gpus.size()) continue;
    add_rates(*wiring);
    return *std::move(wiring);
  }
  plain.source = "assumed: neither NCCL nor nvidia-smi reported how the GPUs are wired";
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

Result<MeasuredGpus> measured_gpus(const CommandContext& context) {
  const Result<TempDir> temp_dir = TempDir::make();
  if (!temp_dir) return temp_dir.error();
  const std::string path = temp_dir->file("measurements.json");
  const std::string dump = temp_dir->file("topology.xml");
  RunProgress progress(!context.quiet && !context.json);
  const Subprocess child{.words = {"/usr/bin/env", "NCCL_TOPO_DUMP_FILE=" + dump,
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

Result<CommandResult> calibrate_gpus(const CommandContext& context) {
  if (const Setting* launcher = context.settings.find("launcher");
      launcher != nullptr && launcher->value != "local") {
    return input_error(launcher->where, in_quotes(launcher->value), "local",
                       "GPUs are measured by the threads of one process");
  }
  const Result<std::string> target = calibration_target(context, gpus_calibration_file());
  if (!target) return target.error();
  const Result<MeasuredGpus> found = measured_gpus(context);
  if (!found) return found.error();
  const Measurements& all = found->measurements;
  const Result<ClusterTopology> cluster =
      ClusterTopology::parse(found->description, kThisMachineGpus, 0);
  if (!cluster) return cluster.error();
  const Result<Framework> framework = find_framework(kExecutingFramework);
  if (!framework) return framework.error();
  const Result<Calibration> prior = pick_calibration(cluster->gpu(), *framework);
  if (!prior) return prior.error();
  const Calibration rates = calibrated_gpus(all, *cluster, *prior, how_measured(" --backend cuda"));
  if (*target == "-") return CommandResult{calibration_to_json(rates)};
  const std::string beside = description_next_to(*target);
  CommandResult result;
  for (const auto& [path, text] :
       {std::pair(*target, calibration_to_json(rates)), std::pair(beside, found->description)}) {
    if (const Status written = write_file(path, text); !written) {
      result.note(at({path, "--output"}, written.error()));
    }
  }
  if (context.json) result.output = measurements_to_json(all);
  if (context.json || context.quiet) return result;
  result.output = calibrate_text(all, {{all.gpu->name, rates}}, context.style);
  if (result.not_written) return result;
  const bool usual = *target == gpus_calibration_file();
  result.output +=
      fmt::format("\nWritten to {} and {}; --cluster {} plans with them.\n", *target, beside,
                  usual ? std::string(kThisMachineGpus) : beside + " --calibration " + *target);
  return result;
}

}  // namespace echelon::cli
