// A time that is not finite never leaves the cost model.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <limits>

#include "core/model/model_io.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "costmodel/cost_model.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

/// Whether `run` ends the program as a violated contract does.
template <class Run>
bool stops(Run run) {
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGABRT, SIG_DFL);
    (void)std::freopen("/dev/null", "w", stderr);
    run();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

/// Prices a plan of one GPU whose steps take `fixed` in addition to everything else.
void price_with(double fixed) {
  const ModelSpec model = load_model("gpt2").value();
  const ClusterTopology cluster = ClusterTopology::load("dgx-h100", 1).value();
  const Framework framework = find_framework("megatron-core").value();
  TrainingJob job;
  job.sequence = 1024;
  job.global_batch = 8;
  job.precision = find_precision("bf16").value();
  Calibration calibration = prior_calibration(cluster.gpu(), framework).value();
  calibration.step_fixed = Seconds{fixed};
  ParallelPlan plan;
  plan.layers_per_stage = {model.layers};
  plan.recompute_layers = {0};
  (void)CostModel(model, job, cluster, framework, calibration).price(plan);
}

}  // namespace

TEST_CASE("a step without a finite time is refused by the cost model") {
  CHECK_FALSE(stops([] { price_with(0.01); }));
  CHECK(stops([] { price_with(std::numeric_limits<double>::quiet_NaN()); }));
  CHECK(stops([] { price_with(std::numeric_limits<double>::infinity()); }));
}
