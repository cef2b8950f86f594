// plan doctor: reports what this build and machine can do. It starts nothing: CUDA is not
// initialised.
#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>

#include "cli/commands/command.hpp"
#include "cli/flags/request.hpp"
#include "cli/flags/this_machine.hpp"
#include "cli/system/subprocess.hpp"
#include "core/base/embedded.hpp"
#include "core/model/model_io.hpp"
#include "core/run/cuda_plugin.hpp"
#include "core/run/launch.hpp"
#include "core/version.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "report/doctor.hpp"
#include "report/format.hpp"

namespace echelon::cli {

namespace {

using State = Finding::State;

/// Whether the loader finds a library; loading it runs no code of ours and opens no device.
bool can_load(const char* library) {
  void* handle = ::dlopen(library, RTLD_LAZY | RTLD_LOCAL);
  if (handle != nullptr) ::dlclose(handle);
  return handle != nullptr;
}

/// The first of them that the loader finds; empty if none.
std::string first_found(std::initializer_list<const char*> libraries) {
  for (const char* library : libraries) {
    if (can_load(library)) return library;
  }
  return "";
}

bool any_exists(std::initializer_list<const char*> paths) {
  std::error_code ignored;
  for (const char* path : paths) {
    if (std::filesystem::exists(path, ignored)) return true;
  }
  return false;
}

/// Which library the plugin lacks. Its dependencies are loaded before its own code is, which needs
/// plan-run's and is therefore not accepted here.
std::optional<MissingLibrary> lacks_library(const std::string& plugin) {
  if (void* handle = ::dlopen(plugin.c_str(), RTLD_LAZY | RTLD_LOCAL); handle != nullptr) {
    ::dlclose(handle);
    return std::nullopt;
  }
  return missing_library(::dlerror());
}

class Examination {
 public:
  explicit Examination(std::string topic) : topic_(std::move(topic)) {}

  void fact(std::string name, std::string detail) {
    findings_.push_back({topic_, std::move(name), State::note, std::move(detail), {}, false});
  }
  /// `found` empty means missing.
  void look(std::string name, std::string found, std::string absent, std::string remedy,
            bool needed = false) {
    const bool missing = found.empty();
    findings_.push_back({topic_, std::move(name), missing ? State::missing : State::fine,
                         missing ? std::move(absent) : std::move(found),
                         missing ? std::move(remedy) : "", needed});
  }
  void add_to(std::vector<Finding>& all) {
    for (Finding& finding : findings_) all.push_back(std::move(finding));
  }

 private:
  std::string topic_;
  std::vector<Finding> findings_;
};

std::string if_true(bool condition, std::string text) {
  return condition ? std::move(text) : std::string();
}

void examine_build(std::vector<Finding>& all) {
  Examination build("This build");
  build.fact("version", fmt::format("{} ({})", version(), commit()));
  build.fact("options", std::string(build_options()));
  build.look("models",
             if_true(!model_catalog().empty(),
                     counted(static_cast<std::int64_t>(model_catalog().size()), "model")),
             "no model was compiled in", "build again from a complete checkout", true);
  const std::vector<std::string> clusters = cluster_catalog();
  build.look("machines",
             if_true(!clusters.empty(),
                     counted(static_cast<std::int64_t>(clusters.size()), "description")),
             "no machine was compiled in", "build again from a complete checkout", true);
  std::vector<std::string_view> names;
  for (const EmbeddedFile& file : embedded_calibrations()) names.push_back(file.name);
  build.look("calibrations", fmt::format("{}", fmt::join(names, ", ")), "none was compiled in",
             "build again from a complete checkout", true);
  build.add_to(all);
}

void examine_default(std::vector<Finding>& all) {
  Examination usual("Defaults of a search");
  const Result<ClusterTopology> cluster = ClusterTopology::load(kDefaultCluster, 0);
  usual.look(
      "machine",
      if_true(cluster.ok(), cluster.ok() ? fmt::format("{}: nodes of {} {}", cluster->name(),
                                                       cluster->node().gpus, cluster->gpu().name)
                                         : ""),
      cluster.ok() ? "" : cluster.error().message(), "name one with --cluster", true);
  const Result<Framework> framework = find_framework(kDefaultFramework);
  if (cluster.ok() && framework.ok()) {
    const Result<Calibration> rates = pick_calibration(cluster->gpu(), *framework);
    usual.look(
        "calibration",
        if_true(rates.ok(),
                rates.ok() ? fmt::format("{} ({})", rates->name, name_of(rates->evidence)) : ""),
        rates.ok() ? "" : rates.error().message(), "name one with --calibration", true);
  }
  usual.add_to(all);
}

void examine_machine(std::vector<Finding>& all) {
  Examination machine("This machine");
  machine.fact("CPU cores", std::to_string(std::max(1U, std::thread::hardware_concurrency())));
  const long pages = ::sysconf(_SC_PHYS_PAGES);
  const long page = ::sysconf(_SC_PAGESIZE);
  machine.fact("memory", with_gib(Bytes{static_cast<double>(pages) * static_cast<double>(page)}));
  const std::string apt = in_path("apt-get");
  machine.look("apt", apt.empty() ? "" : apt + (::geteuid() == 0 ? "" : ", needs root to install"),
               "no apt-get: ./plan cannot install build dependencies", "install packages by hand");
  machine.look("C++ compiler", in_path("c++"), "not in PATH", "apt-get install g++");
  machine.look("CMake", in_path("cmake"), "not in PATH", "apt-get install cmake");
  machine.add_to(all);
}

void examine_runs(std::vector<Finding>& all) {
  Examination runs("Execution on this machine's cores");
  const std::string program = own_folder() + "/plan-run";
  runs.look("plan-run", if_true(::access(program.c_str(), X_OK) == 0, program),
            "plan-run not found next to plan: plans cannot be executed",
            "build the target plan-run, or install both");
  const std::string rates = machine_calibration_file();
  std::error_code ignored;
  runs.look("calibration", if_true(std::filesystem::exists(rates, ignored), rates),
            "this machine is not calibrated: --cluster this-machine uses default rates",
            "plan calibrate");
  runs.add_to(all);
}

void examine_gpus(std::vector<Finding>& all) {
  Examination gpu("GPUs, for execution (planning needs none)");
  gpu.look("nvidia-smi", in_path("nvidia-smi"), "not in PATH", "install the NVIDIA driver");
  gpu.look("CUDA driver", if_true(can_load("libcuda.so.1"), "libcuda.so.1 can be loaded"),
           "libcuda.so.1 not found", "install the NVIDIA driver");
  gpu.look("GPU device", if_true(any_exists({"/dev/nvidia0", "/dev/dxg"}), "a device file exists"),
           "no /dev/nvidia0", "a machine with an NVIDIA GPU");
  std::string nvcc = in_path("nvcc");
  if (nvcc.empty() && any_exists({"/usr/local/cuda/bin/nvcc"})) nvcc = "/usr/local/cuda/bin/nvcc";
  gpu.look("CUDA toolkit", nvcc, "no nvcc in PATH or /usr/local/cuda",
           "apt-get install nvidia-cuda-toolkit, or NVIDIA's own packages");
  const auto loadable = [](const std::string& library) {
    return if_true(!library.empty(), library + " can be loaded");
  };
  gpu.look("cuBLASLt", loadable(first_found({"libcublasLt.so.13", "libcublasLt.so.12"})),
           "libcublasLt.so.13 not found", "cuBLAS of NVIDIA's CUDA toolkit");
  gpu.look("NCCL", loadable(first_found({"libnccl.so.2"})), "libnccl.so.2 not found",
           "NVIDIA's package libnccl2");
  const std::string cudnn = cudnn_library(std::getenv("ECHELON_CUDNN"), 9);
  gpu.look("cuDNN", loadable(first_found({cudnn.c_str()})),
           cudnn + " not found: runs use Echelon's kernels for attention",
           "pip install nvidia-cudnn-cu13, and its folder in ECHELON_CUDNN");
  std::string plugin;
  for (const auto& place : places_of_cuda_plugin(std::getenv("ECHELON_BACKEND_PATH"))) {
    const std::string file = (place / kCudaPlugin).string();
    if (plugin.empty() && any_exists({file.c_str()})) plugin = file;
  }
  const std::optional<MissingLibrary> lacks = plugin.empty() ? std::nullopt : lacks_library(plugin);
  if (lacks) {
    gpu.look("CUDA backend", "", plugin + " needs " + lacks->name + ", which is not found",
             lacks->remedy);
  } else {
    gpu.look(
        "CUDA backend", plugin, "not built",
        "./plan run PLAN.json --backend cuda builds it if nvcc, cuBLASLt and NCCL are installed");
  }
  gpu.add_to(all);
}

void examine_launchers(std::vector<Finding>& all) {
  Examination tools("Launchers and window");
  const Result<std::optional<Launch>> launch = find_launch(environment_of(environ));
  if (launch && *launch) {
    tools.fact("started by", (*launch)->by + ": " + describe(**launch));
  } else {
    tools.look("started by", if_true(launch.ok(), "no launcher: plan run starts all ranks itself"),
               launch ? "" : launch.error().message(), "plan run --launcher local");
  }
  tools.look("mpirun", in_path("mpirun"), "not in PATH", "apt-get install openmpi-bin");
  tools.look("srun", in_path("srun"), "not in PATH", "apt-get install slurm-client");
  tools.look("torchrun", in_path("torchrun"), "not in PATH", "pip install torch");
  const std::string window = own_folder() + "/plan-gui";
  tools.look("plan-gui", if_true(::access(window.c_str(), X_OK) == 0, window),
             "plan-gui not found next to plan: there is no window", "./plan gui builds it");
  tools.look("Qt 6", if_true(can_load("libQt6Widgets.so.6"), "libQt6Widgets.so.6 can be loaded"),
             "libQt6Widgets.so.6 not found",
             "apt-get install qt6-base-dev qt6-charts-dev qt6-svg-dev");
  tools.add_to(all);
}

}  // namespace

Result<CommandResult> doctor_command(const CommandContext& context) {
  std::vector<Finding> findings;
  examine_build(findings);
  examine_default(findings);
  examine_machine(findings);
  examine_runs(findings);
  examine_gpus(findings);
  examine_launchers(findings);
  return CommandResult{context.json ? doctor_json(findings) : doctor_text(findings, context.style),
                       all_needed_found(findings) ? kDone : kEnvironment};
}

}  // namespace echelon::cli
