#include "costmodel/calibration/fit/gpu.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/expects.hpp"
#include "costmodel/calibration/calibration_fields.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "costmodel/calibration/fit/parts.hpp"
#include "costmodel/collectives/collectives_fit.hpp"
#include "costmodel/time/rates.hpp"
#include "topologies/import/this_machine.hpp"

namespace echelon {
namespace {

constexpr double kNarrow = 2;  ///< bytes of bf16

double at(const Measurement& m, std::size_t i) { return static_cast<double>(m.shape[i]); }

/// Bytes of a memory-bound kernel, as operators.hpp counts them; 0 for other kernels.
double traffic_of(const Measurement& m) {
  struct Counted {
    const char* what;
    double bytes;  ///< per row and column
  };
  constexpr Counted kCounted[] = {
      {"norm forward", 2 * kNarrow},   {"norm backward", 4 * kNarrow},
      {"gelu forward", 2 * kNarrow},   {"gelu backward", 3 * kNarrow},
      {"swiglu forward", 3 * kNarrow}, {"swiglu backward", 5 * kNarrow}};
  for (const Counted& each : kCounted) {
    if (m.what == each.what) return each.bytes * at(m, 0) * at(m, 1);
  }
  return 0;
}

/// Numbers a shape of this kind has.
std::size_t least_numbers(const Measurement& m) {
  if (m.what.starts_with("gemm ")) return 3;
  if (m.what.starts_with("attention ")) return 5;
  if (m.what.find("layers ") != std::string::npos) return 4;
  return traffic_of({m.what, 1, 1, {1, 1}, {}}) > 0 || m.what.starts_with("loss ") ? 2 : 1;
}

/// As sharding_costs.cpp counts it: the weight gradient is read and written in fp32.
Bytes traffic_of_product(const Measurement& m) {
  const double inputs = kNarrow * (at(m, 0) * at(m, 2) + at(m, 2) * at(m, 1) + at(m, 0) * at(m, 1));
  return Bytes{inputs + (m.what == "gemm tn" ? 8 * at(m, 0) * at(m, 1) : 0)};
}

class GpuFit {
 public:
  GpuFit(const Measurements& measured, const ClusterTopology& cluster, const Calibration& prior,
         const std::string& how)
      : gpu_(*measured.gpu), cluster_(cluster), out_(prior), how_(how) {
    for (const Measurement& one : measured.all) {
      if (one.seconds > Seconds{} && one.shape.size() >= least_numbers(one)) rows_.push_back(&one);
    }
  }

  Calibration run() {
    keep("kernel_speed_factor", 1, "the rates below are of the kernels themselves");
    launches();
    memory();
    products();
    attention("attention forward", 1);
    attention("attention backward", 2.5);
    optimizer();
    host();
    collectives();
    held();
    return out_;
  }

 private:
  [[nodiscard]] Rows named(std::string_view what) const {
    Rows some;
    for (const Measurement* row : rows_) {
      if (row->what.starts_with(what)) some.push_back(row);
    }
    return some;
  }
  [[nodiscard]] DeviceRates rates() const {
    return device_rates(cluster_.gpu(), out_, Dtype::bf16);
  }
  void keep(const char* key, double value, const std::string& of) {
    const CalibrationField& field = calibration_field(key);
    set_rate(out_, field, std::clamp(value, field.min, field.max));
    set_source(out_, field, how_ + ": " + of);
  }

  void launches() {
    for (const Measurement* row : named("empty kernel")) {
      keep("kernel_fixed", row->seconds.in(1_us),
           fmt::format("one of {} kernels in a graph", row->shape[0]));
    }
  }

  void memory() {
    const Seconds fixed = rates().kernel_fixed;
    std::vector<double> shares;
    const auto add = [&](double bytes, Seconds time, int kernels) {
      // A kernel time is positive: for one as short as an empty kernel, half remains.
      const Seconds left = std::max(time - kernels * fixed, 0.5 * time);
      shares.push_back((Bytes{bytes} / left) / cluster_.gpu().hbm);
    };
    for (const Measurement* row : rows_) {
      if (const double bytes = traffic_of(*row); bytes > 0) add(bytes, row->seconds, 1);
    }
    for (const Measurement* forward : named("loss forward")) {
      for (const Measurement* backward : named("loss backward")) {
        if (forward->shape != backward->shape) continue;
        const double traffic = executing_framework().loss_traffic;
        add(traffic * at(*forward, 0) * at(*forward, 1), forward->seconds + backward->seconds, 3);
      }
    }
    if (shares.empty()) return;
    const std::string of = fmt::format("{} kernels that memory bounds", shares.size());
    keep("memory_efficiency", median_of(std::move(shares)), of);
  }

  void products() {
    const Rows table = named("gemm ");
    if (table.empty()) return;
    const DeviceRates known = rates();
    const FlopsPerSecond peak = cluster_.gpu().peak(Dtype::bf16);
    const auto with = [&](double ramp, double efficiency) {
      DeviceRates r = known;
      r.gemm_ramp = ramp;
      r.gemm = peak * efficiency;
      return misfit(table, [&](const Measurement& row) {
        return gemm_time(at(row, 0), at(row, 1), at(row, 2), traffic_of_product(row), r);
      });
    };
    const auto efficiency_at = [&](double ramp) {
      return best_between(0.005, 1.2, [&](double e) { return with(ramp, e); });
    };
    const double ramp = best_between(1, 4096, [&](double r) { return with(r, efficiency_at(r)); });
    const std::string of = fmt::format("{} products in bf16", table.size());
    keep("gemm_efficiency", efficiency_at(ramp), of);
    keep("gemm_ramp", ramp, of);
  }

  /// `work`: of two products of a causal half each.
  void attention(const char* what, double work) {
    const Rows table = named(what);
    if (table.empty()) return;
    const bool first = work == 1;
    const DeviceRates known = rates();
    const FlopsPerSecond peak = cluster_.gpu().peak(Dtype::bf16);
    const auto predict = [&](const Measurement& row, double ramp, double efficiency) {
      const double s = at(row, 0);
      const double q = at(row, 1) * at(row, 2);
      const double kv = at(row, 3) * at(row, 2);
      const double tokens = s * at(row, 4);
      DeviceRates r = known;
      r.attention_ramp = ramp;
      const Flops flops{work * 2 * tokens * (s / 2) * 2 * q};
      const Bytes traffic{kNarrow * tokens * (first ? 2 * q + 2 * kv : 5 * q + 4 * kv)};
      return attention_time(flops, traffic, s, first ? 1 : 3, peak * efficiency, r);
    };
    const auto with = [&](double ramp, double efficiency) {
      return misfit(table, [&](const Measurement& r) { return predict(r, ramp, efficiency); });
    };
    const auto efficiency_at = [&](double ramp) {
      return best_between(0.002, 1.2, [&](double e) { return with(ramp, e); });
    };
    const double ramp =
        first ? best_between(1, 8192, [&](double r) { return with(r, efficiency_at(r)); })
              : out_.attention_ramp;
    const std::string of = fmt::format("{} sequences and heads", table.size());
    keep(first ? "attention_forward" : "attention_backward", efficiency_at(ramp), of);
    if (first) keep("attention_ramp", ramp, of);
  }

  /// As StageModel::optimizer counts the bytes of fp32 master weights and moments next to bf16
  /// weights: 4 cleared; 2·4 of gradients, 2·12 of states, 2 of weights.
  void optimizer() {
    constexpr double kBytes = 4 + 2 * 4 + 2 * 12 + 2;
    const Rows table = named("clear and adam");
    if (table.empty()) return;
    const Measurement& row = **std::ranges::max_element(
        table, {}, [](const Measurement* each) { return each->shape[0]; });
    keep("optimizer_efficiency", (Bytes{kBytes * at(row, 0)} / row.seconds) / cluster_.gpu().hbm,
         fmt::format("{} parameters", row.shape[0]));
  }

  void host() {
    for (const auto& [key, what] : {std::pair("host_layer_forward", "host of layers forward"),
                                    std::pair("host_layer_backward", "host of layers backward")}) {
      std::vector<double> times;
      for (const Measurement* row : named(what)) {
        times.push_back(row->seconds.in(1_us) / at(*row, 0));
      }
      if (times.empty()) continue;
      const std::string of = fmt::format("{} chunks put on an idle queue", times.size());
      keep(key, median_of(std::move(times)), of);
    }
    for (const Measurement* row : named("kernel after a copy to host")) {
      keep("host_wait", std::max(Seconds{}, row->seconds - rates().kernel_fixed).in(1_us),
           "an empty kernel launched when the copy before it was over");
    }
    if (const Rows steps = named("empty step"); steps.size() > 1) {
      keep("step_fixed", executor_times(steps).step.in(1_us),
           fmt::format("{} steps of the executor that compute nothing", steps.size()));
    }
  }

  void collectives() {
    std::vector<PlacedCollective> placed;
    for (const Measurement* row : rows_) {
      const auto kind = collective_named(row->what);
      const std::int64_t distance = row->shape.size() > 1 ? row->shape[1] : 1;
      // Larger distances would be groups of more GPUs than exist.
      if (!kind || distance < 1 || row->ranks * distance > cluster_.gpus()) continue;
      placed.push_back({*kind, Bytes{at(*row, 0)}, row->seconds,
                        cluster_.group({row->ranks, static_cast<int>(distance)})});
    }
    const auto used = std::ranges::count_if(
        placed, [](const PlacedCollective& row) { return row.bytes >= kFitFrom; });
    if (used == 0) return;
    const Calibration now = fitted(out_, fit_collectives(placed, out_));
    const std::string of =
        fmt::format("{} collectives of 1 MiB and more by NCCL {}", used, gpu_.nccl);
    for (const char* key : {"link_efficiency", "collective_base", "intra_hop", "switch_base"}) {
      keep(key, rate_of(now, calibration_field(key)), of);
    }
  }

  void held() {
    if (gpu_.context > Bytes{}) {
      keep("context", gpu_.context.in(1_MiB),
           "cudaMemGetInfo with all kernels and cuBLASLt loaded, less our own memory");
    }
    if (!gpu_.attention.empty()) {
      keep("attention_parts", gpu_.attention_parts.in(1_MiB),
           "parts that cuDNN's deterministic backward goes over; attention by " + gpu_.attention);
      keep("attention_deterministic", gpu_.attention_deterministic ? 1 : 0,
           "ECHELON_DETERMINISTIC of plan calibrate");
    }
    if (gpu_.communicator > Bytes{}) {
      keep("nccl_per_communicator", gpu_.communicator.in(1_MiB),
           "cudaMemGetInfo before and after a communicator's first collective");
      keep("nccl_per_peer", gpu_.peer.in(1_MiB),
           "cudaMemGetInfo before and after its first exchange of parts, by its other members");
    }
  }

  const GpuFacts& gpu_;
  const ClusterTopology& cluster_;
  Calibration out_;
  std::string how_;
  Rows rows_;
};

}  // namespace

Calibration calibrated_gpus(const Measurements& measured, const ClusterTopology& cluster,
                            const Calibration& prior, const std::string& how) {
  EXPECTS(measured.gpu.has_value(), "measurements of GPUs");
  Calibration out = GpuFit(measured, cluster, prior, how).run();
  out.name = kThisMachineGpus;
  out.power_reference = 0;  // the rates are those of this GPU under its own power
  out.gpu_family = cluster.gpu().name;
  out.framework = kExecutingFramework;
  out.evidence = Evidence::calibrated;
  out.fitted_to = fmt::format("{}: {} times on {} of {}", how, measured.all.size(),
                              measured.gpu->gpus, measured.gpu->name);
  return out;
}

}  // namespace echelon
