// Jobs on racks of 72 GPUs: how many of each they use, and where that is said.
#include <string>

#include "tests/cli/program.hpp"

namespace echelon::test {
namespace {

TEST_CASE("predict prices and names equally many GPUs of each rack") {
  const Sandbox sandbox;
  // NVIDIA's recipe for Qwen3-235B on GB200.
  const std::string job =
      "predict --model qwen3-235b-a22b --cluster gb200-nvl72 --seq 4096 --pp 8 --vpp 3 --ep 32 "
      "--zero 1 --microbatch 1 --dispatcher hybridep ";
  const ProcessResult even = sandbox.plan(job + "--gpus 256 --global-batch 8192 --json");
  INFO(even.err);
  const nlohmann::ordered_json document = nlohmann::ordered_json::parse(even.out);
  CHECK(document["time"]["step_seconds"].get<double>() < 34);
  CHECK(lacks(document["assumptions"].dump(), "64 of 72 GPUs of each of 4 NVLink domains") == "");
}

TEST_CASE("predict says where a job does not spread evenly over racks") {
  const Sandbox sandbox;
  const std::string job = "predict --model llama3-8b --cluster gb200-nvl72 --global-batch 304 ";
  CHECK(lacks(sandbox.plan(job + "--gpus 76").out, "4 in the last: 19 nodes do not spread") == "");
  CHECK(sandbox.plan(job + "--gpus 72").out.find("NVLink domains") == std::string::npos);
}

TEST_CASE("answers for GPUs of which no rate is known say whose rates they take") {
  const Sandbox sandbox;
  const std::string job = "predict --model llama3-8b --gpus 72 --global-batch 144 --cluster ";
  const ProcessResult rubin = sandbox.plan(job + "vr200");
  CHECK(rubin.exit_code == 0);
  CHECK(lacks(rubin.out, "rates of blackwell GPUs, extrapolated to VR200") == "");
  CHECK(lacks(rubin.out, "s, extrapolated)") == "");
  const ProcessResult helios = sandbox.plan(job + "mi455x");
  CHECK(helios.exit_code == 0);
  CHECK(lacks(helios.out, "rates of cdna4 GPUs, extrapolated to MI455X") == "");
  CHECK(sandbox.plan(job + "gb300").out.find("extrapolated to") == std::string::npos);
  // TransformerEngine has kernels of blocks for Rubin (sm_107), not for ROCm.
  for (const char* format : {"mxfp8", "nvfp4"}) {
    CAPTURE(format);
    const std::string precision = std::string(" --precision ") + format;
    CHECK(sandbox.plan(job + "vr200" + precision).exit_code == 0);
    const ProcessResult refused = sandbox.plan(job + "mi455x" + precision);
    CHECK(refused.exit_code != 0);
    CHECK(lacks(refused.err, "MI455X (no CUDA)") == "");
  }
}

TEST_CASE("topo show writes large rates out") {
  const Sandbox sandbox;
  const std::string shown = sandbox.plan("topo show vr200").out;
  CHECK(lacks(shown, "276.84 GiB at 19200 GB/s") == "");
  CHECK(lacks(shown, "fp8 17500 TFLOP/s") == "");
}

TEST_CASE("topo show says how larger jobs lie in NVLink domains of several nodes") {
  const Sandbox sandbox;
  const std::string placed = "equally many GPUs of each NVLink domain";
  CHECK(lacks(sandbox.plan("topo show gb200-nvl72").out, placed) == "");
  CHECK(sandbox.plan("topo show dgx-h100").out.find(placed) == std::string::npos);
}

TEST_CASE("the job of Slurm asks for the nodes of each rack") {
  const Sandbox sandbox;
  const std::string job =
      "export slurm --model llama3-8b --global-batch 1024 --cluster gb200-nvl72 --gpus ";
  CHECK(lacks(sandbox.plan(job + "256").out, "#SBATCH --segment=16\n") == "");
  CHECK(lacks(sandbox.plan(job + "64").out, "#SBATCH --segment=16\n") == "");
  CHECK(sandbox.plan(job + "4").out.find("--segment") == std::string::npos);
  CHECK(sandbox.plan(job + "76 --global-batch 1064").out.find("--segment") == std::string::npos);
}

}  // namespace
}  // namespace echelon::test
