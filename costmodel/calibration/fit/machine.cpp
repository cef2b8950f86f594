#include "costmodel/calibration/fit/machine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "costmodel/calibration/calibration_fields.hpp"
#include "costmodel/calibration/fit/parts.hpp"
#include "costmodel/collectives/collectives.hpp"
#include "costmodel/operators/operators.hpp"
#include "costmodel/time/rates.hpp"

namespace echelon {
namespace {

bool is_gemm(const Measurement& m) { return m.what.starts_with("gemm "); }

Seconds gemm_of(const Measurement& row, const DeviceRates& rates) {
  const auto m = static_cast<double>(row.shape[0]);
  const auto n = static_cast<double>(row.shape[1]);
  const auto k = static_cast<double>(row.shape[2]);
  return gemm_time(m, n, k, Bytes{}, rates);
}

/// Fits the rates, one group after the other.
class MachineFit {
 public:
  MachineFit(const std::vector<Measurement>& all, int cores, const GpuSpec& rank,
             const Calibration& prior, const std::string& how)
      : rank_(rank), out_(prior), how_(how) {
    for (const Measurement& one : all) {
      if (one.cores == cores && one.seconds > Seconds{}) rows_.push_back(&one);
    }
  }

  Calibration run() {
    gemms();
    attention("attention forward", &Calibration::attention_forward, 1);
    attention("attention backward", &Calibration::attention_backward, 2.5);
    pointwise();
    double_width();
    optimizer();
    host();
    collectives();
    return out_;
  }

 private:
  template <class Which>
  [[nodiscard]] Rows rows(Which which) const {
    Rows some;
    for (const Measurement* row : rows_) {
      if (which(*row)) some.push_back(row);
    }
    return some;
  }
  [[nodiscard]] Rows named(std::string_view what) const {
    return rows([what](const Measurement& m) { return m.what == what; });
  }
  [[nodiscard]] DeviceRates rates() const { return device_rates(rank_, out_, Dtype::fp32); }
  void keep(const char* key, double value, const std::string& of) {
    const CalibrationField& field = calibration_field(key);
    set_rate(out_, field, std::clamp(value, field.min, field.max));
    set_source(out_, field, how_ + ": " + of);
  }

  void gemms() {
    const Rows table = rows(is_gemm);
    if (table.empty()) return;
    const auto with = [&](double ramp, double fixed_us, double efficiency) {
      DeviceRates r = rates();
      r.gemm_ramp = ramp;
      r.kernel_fixed = fixed_us * 1_us;
      r.gemm = rank_.peak(Dtype::fp32) * efficiency;
      return misfit(table, [&](const Measurement& row) { return gemm_of(row, r); });
    };
    const auto efficiency_at = [&](double ramp, double fixed) {
      return best_between(0.005, 1.2, [&](double e) { return with(ramp, fixed, e); });
    };
    const auto fixed_at = [&](double ramp) {
      return best_between(
          0.1, 200, [&](double fixed) { return with(ramp, fixed, efficiency_at(ramp, fixed)); });
    };
    const double ramp = best_between(1, 1024, [&](double r) {
      const double fixed = fixed_at(r);
      return with(r, fixed, efficiency_at(r, fixed));
    });
    const double fixed = fixed_at(ramp);
    const std::string of = fmt::format("{} products", table.size());
    keep("gemm_efficiency", efficiency_at(ramp, fixed), of);
    keep("gemm_ramp", ramp, of);
    keep("kernel_fixed", fixed, of);
  }

  void attention(const char* what, double Calibration::*rate, double work) {
    const Rows table = named(what);
    if (table.empty()) return;
    const auto predict = [&](const Measurement& row, double efficiency, double ramp) {
      const auto s = static_cast<double>(row.shape[0]);
      const auto width = static_cast<double>(row.shape[1] * row.shape[2]);
      const Flops flops{work * 2 * s * (s / 2) * 2 * width};
      return flops / (rank_.peak(Dtype::fp32) * efficiency * (s / (s + ramp)));
    };
    const auto with = [&](double ramp, double efficiency) {
      return misfit(table, [&](const Measurement& r) { return predict(r, efficiency, ramp); });
    };
    const auto efficiency_at = [&](double ramp) {
      return best_between(0.002, 1.2, [&](double e) { return with(ramp, e); });
    };
    // One ramp for both passes: that of the forward.
    const bool first = work == 1;
    const double ramp =
        first ? best_between(1, 1024, [&](double r) { return with(r, efficiency_at(r)); })
              : out_.attention_ramp;
    const std::string of = fmt::format("{} sequences", table.size());
    keep(rate == &Calibration::attention_forward ? "attention_forward" : "attention_backward",
         efficiency_at(ramp), of);
    if (first) keep("attention_ramp", ramp, of);
  }

  /// Bytes over a layer's time without its products and attention, forward and backward together;
  /// for narrow layers, since in wide ones products take nearly all the time.
  void pointwise() {
    std::vector<double> shares;
    for (const Measurement* row : rows([](const Measurement& m) {
           return m.what.starts_with("layers ") && m.shape[1] <= kNarrow;
         })) {
      const LayersMeasured parts = price_of(*row, rank_, out_);
      // At least a fiftieth, in case products were measured slower than they run in a layer.
      const Seconds left =
          std::max(row->seconds - parts.gemm - parts.attention, 0.02 * row->seconds);
      shares.push_back((parts.pointwise / left) / rank_.hbm);
    }
    if (shares.empty()) return;
    keep("memory_efficiency", median_of(shares),
         fmt::format("{} passes through layers, less their products", shares.size()));
  }

  /// The same pass in fp32 and in fp64, whose peak is half and whose numbers are twice as wide.
  void double_width() {
    std::vector<double> shares;
    for (const Measurement* wide :
         rows([](const Measurement& m) { return m.what.starts_with("fp64 "); })) {
      for (const Measurement* row : named(std::string_view(wide->what).substr(5))) {
        if (row->shape == wide->shape) shares.push_back(2 * (row->seconds / wide->seconds));
      }
    }
    if (shares.empty()) return;
    keep("fp64_efficiency", median_of(shares),
         fmt::format("{} passes through layers, beside the same in fp32", shares.size()));
  }

  void host() {
    const Rows table = named("empty step");
    if (table.size() < 2) return;
    const ExecutorTimes times = executor_times(table);
    const std::string of =
        fmt::format("{} steps of the executor that compute nothing", table.size());
    keep("host_instruction", times.instruction.in(1_us), of);
    keep("step_fixed", times.step.in(1_us), of);
  }

  /// Of the largest size: smaller ones fit into caches. Bytes as StageModel::optimizer counts them
  /// for an fp32 recipe: 4 cleared; 2·4 + 2·8 + 4.
  void optimizer() {
    constexpr double kBytes = 4 + 2 * 4 + 2 * 8 + 4;
    const Rows table = named("clear and adam");
    if (table.empty()) return;
    const Measurement& row = **std::ranges::max_element(
        table, {}, [](const Measurement* each) { return each->shape[0]; });
    const Bytes bytes{kBytes * static_cast<double>(row.shape[0])};
    keep("optimizer_efficiency", (bytes / row.seconds) / rank_.hbm,
         fmt::format("{} parameters", row.shape[0]));
  }

  void collectives() {
    const Rows table =
        rows([](const Measurement& m) { return collective_named(m.what).has_value(); });
    if (table.empty()) return;
    const auto with = [&](double base_us, double share) {
      return misfit(table, [&](const Measurement& row) {
        GroupLinks links;
        links.ranks = links.ranks_per_domain = row.ranks;
        links.intra = links.intra_exchange = kLink * share;
        links.base = base_us * 1_us;
        return collective_time(*collective_named(row.what),
                               Bytes{static_cast<double>(row.shape[0])}, links);
      });
    };
    const auto share_at = [&](double base) {
      return best_between(0.001, 1.2, [&](double share) { return with(base, share); });
    };
    const double base = best_between(0.2, 2000, [&](double b) { return with(b, share_at(b)); });
    const std::string of = fmt::format("{} collectives between ranks", table.size());
    keep("collective_base", base, of);
    keep("link_efficiency", share_at(base), of);
    keep("intra_hop", 0, of);
  }

  static constexpr std::int64_t kNarrow = 256;  // hidden
  static constexpr BytesPerSecond kLink{50e9};  // topologies/import/this_machine_io.cpp
  const GpuSpec& rank_;
  Calibration out_;
  std::string how_;
  Rows rows_;
};

}  // namespace

ExecutorTimes executor_times(const Rows& empty_steps) {
  double count = 0, step = 0;
  for (const Measurement* row : empty_steps) {
    count += static_cast<double>(row->shape[0]);
    step += row->seconds.in(1_us);
  }
  const auto n = static_cast<double>(empty_steps.size());
  double together = 0, alone = 0;
  for (const Measurement* row : empty_steps) {
    const double more = static_cast<double>(row->shape[0]) - count / n;
    together += more * (row->seconds.in(1_us) - step / n);
    alone += more * more;
  }
  const double each = alone > 0 ? std::max(0.0, together / alone) : 0.0;
  return {.instruction = each * 1_us, .step = std::max(0.0, (step - each * count) / n) * 1_us};
}

LayersMeasured price_of(const Measurement& row, const GpuSpec& rank, const Calibration& rates) {
  ModelSpec model;
  const auto layers = static_cast<double>(row.shape[0]);
  model.layers = static_cast<int>(row.shape[0]);
  model.hidden = static_cast<int>(row.shape[1]);
  model.head_dim = 32;
  model.heads = model.kv_heads = model.hidden / model.head_dim;
  model.ffn_hidden = 4 * model.hidden;
  model.vocab = 256;
  model.normalization = Normalization::layer_norm;
  model.activation = Activation::gelu;
  model.position = PositionEmbedding::learned;
  model.gated_mlp = false;
  model.qkv_bias = model.attention_output_bias = model.mlp_bias = true;
  TrainingJob job;
  job.sequence = static_cast<int>(row.shape[2]);
  job.precision = find_precision("fp32").value();
  const LayerSharding sharding{.microbatch = static_cast<int>(row.shape[3])};
  const OperatorList list =
      layer_operators(model, job, executing_framework(), sharding, LayerKind::dense);
  const DeviceRates r = device_rates(rank, rates, Dtype::fp32);
  const bool backward = row.what == "layers backward";
  LayersMeasured out;
  for (const Operator& op : list.view()) {
    if (op.kind == OperatorKind::elementwise) {
      out.pointwise += layers * (backward ? op.backward_traffic : op.forward_traffic);
    } else if (op.kind == OperatorKind::attention) {
      out.attention +=
          layers * (backward ? attention_time(op.backward, Bytes{}, op.span, op.backward_kernels,
                                              r.attention_backward, r)
                             : attention_time(op.forward, Bytes{}, op.span, op.forward_kernels,
                                              r.attention_forward, r));
    } else if (op.kind == OperatorKind::gemm) {
      out.gemm += layers * (backward ? gemm_time(op.m, op.k, op.n, Bytes{}, r) +
                                           gemm_time(op.k, op.n, op.m, Bytes{}, r)
                                     : gemm_time(op.m, op.n, op.k, Bytes{}, r));
    }
  }
  return out;
}

Calibration calibrated(const std::vector<Measurement>& all, int cores, const GpuSpec& rank,
                       const Calibration& prior, const std::string& how) {
  Calibration out = MachineFit(all, cores, rank, prior, how).run();
  out.name = "this-machine";
  out.gpu_family = "cpu";
  out.framework = "any";
  out.evidence = Evidence::calibrated;
  out.fitted_to = how;
  set_source(out, calibration_field("time_band"),
             "assumption: kernels of this computer are measured, steps are not; `plan fit` of run "
             "reports narrows it");
  return out;
}

}  // namespace echelon
