// Plans for emulated GPUs (tests/runtime/cuda/standins), and their runs.
#pragma once

#include <string>

#include "tests/cli/runs.hpp"
#include "tests/places.hpp"
#include "tests/support/text.hpp"

namespace echelon::test {

class GpuRuns : public Runs {
 public:
  /// The model is GPT-2-like, with heads of 64.
  explicit GpuRuns(int gpus, int mebibytes = 1024, int layers = 2)
      : environment_("ECHELON_BACKEND_PATH=" ECHELON_PRETENDED_GPUS " PRETENDED_GPUS=" +
                     std::to_string(gpus) + " PRETENDED_MEBIBYTES=" + std::to_string(mebibytes) +
                     " XDG_CACHE_HOME=" + shell_word(sandbox.file("cache"))) {
    std::string model = slurp(std::string(ECHELON_SOURCE_DIR) + "/tests/cli/wide_heads.json");
    const std::string two = "\"n_layer\": 2";
    const std::size_t at = model.find(two);
    REQUIRE(at != std::string::npos);
    model.replace(at + two.size() - 1, 1, std::to_string(layers));
    sandbox.write("model.json", model);
  }
  void gpu_plan(const std::string& name, int gpus, const std::string& degrees,
                const std::string& cluster = "dgx-h100") const {
    const ProcessResult made =
        plan("--model model.json --cluster " + cluster + " --gpus " + std::to_string(gpus) +
             " --seq 16 --global-batch 4 --microbatch 1 " + degrees + " --framework echelon -o " +
             name + " --quiet");
    INFO(made.err);
    REQUIRE(made.exit_code == 0);
  }
  [[nodiscard]] ProcessResult plan(const std::string& arguments) const {
    return sandbox.shell("timeout 120 " + sandbox.program(environment_) + " " + arguments);
  }
  /// The environment with which plan-run finds the GPUs.
  [[nodiscard]] const std::string& environment() const { return environment_; }

 private:
  std::string environment_;
};

}  // namespace echelon::test
