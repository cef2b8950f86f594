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
