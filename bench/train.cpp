// Training speed of a plan versus the capability of this machine. Steps alternate with a large
// square product (the peak) and a copy (memory bandwidth), so that other programs disturb all three
// alike; the minimum time of each counts.
//
//   bench_train PLAN.json [STEPS]        PLAN.json: written by `plan predict -o`
//
// `model_GFLOPs`: the FLOPs of the model, without recomputation (ModelSpec::flops_per_token),
// divided by the time. `of_peak` = model_GFLOPs / gemm_GFLOPs. `processor`: the same, divided by
// the CPU time of all threads, for busy machines whose threads sleep while they wait
// (OMP_WAIT_POLICY=passive); its GFLOPs are per core. `copy_GBps`: a copied byte counts once. There
// is one thread per core of the machine; the ranks of a plan share them.
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "runtime/cpu/kernels.hpp"
#include "runtime/threads/clock.hpp"
#include "runtime/training/run.hpp"

namespace {

using namespace echelon;

/// Wall time, and CPU time of all threads.
struct Times {
  Seconds wall{std::numeric_limits<double>::infinity()};
  Seconds processor{std::numeric_limits<double>::infinity()};
  void keep_min(const Times& other) {
    wall = std::min(wall, other.wall);
    processor = std::min(processor, other.processor);
  }
};
Seconds processor_now() { return Seconds{static_cast<double>(std::clock()) / CLOCKS_PER_SEC}; }

constexpr std::int64_t kSide = 2048;           ///< side of the square product
constexpr std::int64_t kCopied = 1 << 24;      ///< numbers; larger than any cache
constexpr std::int64_t kPart = kCopied >> 6U;  ///< numbers that a thread copies at a time

/// Times of the machine, measured between steps.
class Machine {
 public:
  explicit Machine(int threads) : threads_(threads) {}

  void measure() {
    omp_set_num_threads(threads_);
    for (int i = 0; i < 3; ++i) {
      product_.keep_min(timed([&] {
        using cpu::Order;
        cpu::gemm(Order::plain, Order::transposed, kSide, kSide, kSide, from_.data(), kSide,
                  from_.data(), kSide, to_.data(), kSide, false);
      }));
      copy_.keep_min(timed([&] {
#pragma omp parallel for schedule(static)
        for (std::int64_t at = 0; at < kCopied; at += kPart) {
          std::copy_n(from_.data() + at, kPart, to_.data() + at);
        }
      }));
    }
  }
  [[nodiscard]] const Times& product() const { return product_; }
  [[nodiscard]] double copied_bytes() const { return 4.0 * kCopied / copy_.wall.in(kSecond); }

 private:
  template <class Work>
  static Times timed(const Work& work) {
    const Times begin{steady_now(), processor_now()};
    work();
    return {steady_now() - begin.wall, processor_now() - begin.processor};
  }

  int threads_;
  std::vector<float> from_ = std::vector<float>(kCopied, 1.0F);
  std::vector<float> to_ = std::vector<float>(kCopied, 1.0F);
  Times product_;
  Times copy_;
};

int fail(const std::string& what) {
  std::fprintf(stderr, "bench_train: %s\n", what.c_str());
  return 2;
}

int bench(const std::string& path, std::int64_t steps) {
  const Result<PlanFile> plan = read_plan_file(path);
  if (!plan) return fail(plan.error().message());
  RunSettings settings;
  settings.plan = path;
  settings.steps = steps;
  settings.noise_every = 0;
  RunContext context;
  context.cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  Machine machine(context.cores);
  machine.measure();
  Times step;
  Seconds used;
  context.notify = [&](const RunEvent& event) {
    if (event.kind != RunEvent::Kind::step) return;
    // The first step touches memory for the first time.
    if (event.step.step > 0) step.keep_min({event.step.seconds, processor_now() - used});
    machine.measure();
    used = processor_now();
  };
  const Result<RunReport> report = run_plan(*plan, settings, context);
  if (!report) return fail(report.error().message());
  if (report->end != RunReport::End::completed) return fail(report->reason);
  const double tokens = plan->job.tokens_per_step();
  const double flops = plan->model.flops_per_token(plan->job.sequence).in(kFlop)*tokens;
  const auto print = [&](const char* kind, Seconds took, Seconds product) {
    const double rate = flops / took.in(kSecond);
    const double peak = 2.0 * kSide * kSide * kSide / product.in(kSecond);
    fmt::print("step_ms{0} {1:.0f}\nmodel_GFLOPs{0} {2:.1f}\ngemm_GFLOPs{0} {3:.1f}\n", kind,
               took.in(kSecond)*1e3, rate * 1e-9, peak * 1e-9);
    fmt::print("of_peak{} {:.3f}\n", kind, rate / peak);
  };
  print("", step.wall, machine.product().wall);
  print("_processor", step.processor, machine.product().processor);
  fmt::print("tokens_per_s {:.1f}\n", tokens / step.wall.in(kSecond));
  fmt::print("copy_GBps {:.1f}\n", machine.copied_bytes() * 1e-9);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 && argc != 3) return fail("expected PLAN.json [STEPS]");
  const std::int64_t steps = argc == 3 ? std::atoll(argv[2]) : 6;
  if (steps < 2) return fail("expected at least 2 steps; the first is not counted");
  return bench(argv[1], steps);
}
