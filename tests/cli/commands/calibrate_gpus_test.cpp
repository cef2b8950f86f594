// GPUs of this machine: calibration, planning, imported topologies.
#include "cli/commands/calibrate.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "tests/cli/program.hpp"
#include "topologies/import/this_machine.hpp"
#include "topologies/import/wiring.hpp"

using namespace echelon;
using echelon::test::complaint;
using echelon::test::document;
using echelon::test::Sandbox;

namespace {

/// The files that `plan calibrate --backend cuda` writes on a machine with two GPUs.
void leave_calibration(const Sandbox& sandbox) {
  GpuFacts gpu;
  gpu.name = "NVIDIA H200";
  gpu.gpus = 2;
  gpu.memory = 139.8 * 1_GiB;
  gpu.sms = 132;
  gpu.compute_capability = 9;
  WiredMachine machine;
  machine.name = kThisMachineGpus;
  machine.gpu = gpu;
  machine.wiring.source = "a test";
  for (int i = 0; i < 2; ++i) machine.wiring.gpus.push_back({0, std::nullopt, 18});
  Calibration rates = shipped_calibration("hopper-echelon").value();
  rates.name = kThisMachineGpus;
  rates.evidence = Evidence::calibrated;
  sandbox.write(".config/echelon/this-machine-gpus.cluster.json", description_of(machine).value());
  sandbox.write(".config/echelon/this-machine-gpus.json", calibration_to_json(rates));
}

const std::string kGpt2 = "--model gpt2 --seq 1024 --global-batch 16 --cluster this-machine-gpus";

constexpr const char* kMatrix =
    "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\n"
    "GPU0\t X \tNV18\tPXB\t0-55\t0\n"
    "GPU1\tNV18\t X \tPXB\t0-55\t0\n";

}  // namespace

TEST_CASE("plans for measured GPUs use their calibration, separate from that of the cores") {
  const Sandbox sandbox;
  leave_calibration(sandbox);
  const auto found =
      document(sandbox.plan("predict " + kGpt2 + " --gpus 2 --dp 2 --microbatch 4 --json"));
  CHECK(found["cluster"] == "this-machine-gpus");
  CHECK(found["framework"] == "echelon");
  CHECK(found["calibration"] == "this-machine-gpus");
  CHECK(found["kind"] == "calibrated");
  CHECK(found["time"]["step_seconds"] > 0);
  const auto searched = document(sandbox.plan(kGpt2 + " --json"))["winner"];
  CHECK(searched["gpus"] == 2);
  // Kernels of other frameworks were not measured.
  const auto other = document(
      sandbox.plan("predict " + kGpt2 + " --gpus 2 --dp 2 --framework megatron-core --json"));
  CHECK(other["calibration"] != "this-machine-gpus");
  const auto cores = document(
      sandbox.plan("predict --model gpt2-tiny --cluster this-machine --gpus 2 --dp 2 --json"));
  CHECK(cores["cluster"] == "this-machine");
  CHECK(cores["calibration"] != "this-machine-gpus");
  const ProcessResult shown = sandbox.plan("topo show this-machine-gpus");
  CHECK(shown.exit_code == 0);
  CHECK(shown.out.find("NVIDIA H200") != std::string::npos);
}

TEST_CASE("the error for unmeasured GPUs names the command that measures them") {
  const Sandbox sandbox;
  const std::string told = complaint(sandbox.plan(kGpt2), 3);
  CHECK(told.find("plan calibrate --backend cuda") != std::string::npos);
}

TEST_CASE("calibrating GPUs on a machine without GPUs fails with a reason and writes nothing") {
  const Sandbox sandbox;
  const ProcessResult none =
      sandbox.plan("calibrate --backend cuda -o rates.json", "CUDA_VISIBLE_DEVICES=-1");
  INFO(none.err);
  CHECK(none.exit_code == 3);
  CHECK(none.out.empty());
  CHECK(none.err.find("--backend cuda") != std::string::npos);
  CHECK(none.err.find("nothing was measured") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(sandbox.file("rates.json")));
  CHECK_FALSE(std::filesystem::exists(sandbox.file("rates.cluster.json")));
}

TEST_CASE("calibrate refuses unknown backends and launchers") {
  const Sandbox sandbox;
  const std::string backend = complaint(sandbox.plan("calibrate --backend tpu"), 2);
  CHECK(backend.find("one of cpu, cuda") != std::string::npos);
  const std::string launcher =
      complaint(sandbox.plan("calibrate --backend cuda --launcher mpi"), 2);
  CHECK(launcher.find("expected local") != std::string::npos);
}

TEST_CASE("a topology is imported, validated and used for planning") {
  const Sandbox sandbox;
  sandbox.write("node.txt", kMatrix);
  const ProcessResult made =
      sandbox.plan("topo import node.txt --gpu h100 --nic-rate 400Gbps --name lab -o lab.json");
  INFO(made.err);
  CHECK(made.exit_code == 0);
  CHECK(made.out.find("lab") == 0);
  CHECK(sandbox.plan("topo check lab.json").exit_code == 0);
  const auto plan =
      document(sandbox.plan("predict --model gpt2 --cluster lab.json --gpus 2 --dp 2 --json"));
  CHECK(plan["cluster"] == "lab.json");
  const auto printed = document(sandbox.plan("topo import node.txt --gpu h100"));
  CHECK(printed["node"]["interconnect"]["kind"] == "nvlink-mesh");
  CHECK_FALSE(printed["node"].contains("nics"));
  CHECK(printed["notes"].get<std::string>().find("--nic-rate") != std::string::npos);
}

TEST_CASE("failed imports give the reason") {
  const Sandbox sandbox;
  sandbox.write("node.txt", kMatrix);
  sandbox.write("bad.txt", "hello\n");
  const auto says = [&](const std::string& arguments, const char* part) {
    const std::string told = complaint(sandbox.plan("topo import " + arguments), 2);
    INFO(told);
    CHECK(told.find(part) != std::string::npos);
  };
  says("node.txt", "--gpu");
  says("node.txt --gpu h1000", "unknown GPU");
  says("none.txt --gpu h100", "none.txt");
  says("bad.txt --gpu h100", "no matrix of GPUs");
  says("node.txt --gpu h100 --nic-rate fast", "--nic-rate");
}

TEST_CASE("a calibration of processor cores names the load that it was measured beside") {
  CHECK(cli::busy_text(0.4, 2) == "");
  CHECK(cli::busy_text(13.24, 2) == "load 13.2 on 2 cores");
  CHECK(cli::busy_text(0.5, 1) == "load 0.5 on 1 core");
}
