#include "costmodel/calibration/fit/fit.hpp"

#include <fmt/format.h>

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>

#include "core/base/expects.hpp"
#include "costmodel/calibration/calibration_fields.hpp"

namespace echelon {
namespace {

/// One parameter in the units the solver works in: u = 0 is the prior, |u| = 1 one spread away.
class Knob {
 public:
  Knob(const Calibration& base, const FitParameter& parameter)
      : parameter_(parameter),
        field_(calibration_field(parameter.key)),
        prior_(std::clamp(rate_of(base, field_), parameter.min, parameter.max)) {
    if (!parameter.along.empty()) {
      along_ = &calibration_field(parameter.along);
      ratio_ = rate_of(base, *along_) / prior_;
    }
  }

  [[nodiscard]] double value(double u) const {
    const double raw = parameter_.additive ? prior_ + u * parameter_.spread
                                           : prior_ * std::exp(u * parameter_.spread);
    return std::clamp(raw, parameter_.min, parameter_.max);
  }
  void turn(Calibration& calibration, double u) const {
    set_rate(calibration, field_, value(u));
    if (along_ != nullptr) set_rate(calibration, *along_, value(u) * ratio_);
  }
  /// The nearest u whose value is not cut off by the range.
  [[nodiscard]] double within(double u) const {
    const auto u_of = [&](double v) {
      return parameter_.additive ? (v - prior_) / parameter_.spread
                                 : std::log(v / prior_) / parameter_.spread;
    };
    return std::clamp(u, u_of(parameter_.min), u_of(parameter_.max));
  }
  [[nodiscard]] double prior() const { return prior_; }
  [[nodiscard]] const FitParameter& parameter() const { return parameter_; }

 private:
  const FitParameter& parameter_;
  const CalibrationField& field_;
  const CalibrationField* along_ = nullptr;
  double prior_;
  double ratio_ = 1;
};

/// In spreads: far above rounding, and it smooths small kinks.
constexpr double kStep = 0.05;

class Solver {
 public:
  Solver(const Calibration& base, std::span<const FitParameter> parameters,
         std::span<const double> weights, const LogErrors& errors, const FitOptions& options)
      : base_(base), weights_(weights), errors_(errors), options_(options) {
    for (const FitParameter& parameter : parameters) knobs_.emplace_back(base, parameter);
    u_ = Eigen::VectorXd::Zero(static_cast<Eigen::Index>(knobs_.size()));
  }

  Fit solve();

 private:
  using Vector = Eigen::VectorXd;

  [[nodiscard]] Calibration at(const Vector& u) const {
    Calibration c = base_;
    for (std::size_t j = 0; j < knobs_.size(); ++j) {
      knobs_[j].turn(c, u[static_cast<Eigen::Index>(j)]);
    }
    return c;
  }
  [[nodiscard]] Vector errors_at(const Vector& u) const {
    Vector e(static_cast<Eigen::Index>(weights_.size()));
    errors_(at(u), {e.data(), weights_.size()});
    return e;
  }
  [[nodiscard]] double loss(const Vector& e, const Vector& u) const {
    double sum = u.squaredNorm();
    for (Eigen::Index i = 0; i < e.size(); ++i) {
      const double r = e[i] / options_.noise;
      sum += weights_[static_cast<std::size_t>(i)] * 2 * (std::sqrt(1 + r * r) - 1);
    }
    return sum;
  }
  [[nodiscard]] Eigen::MatrixXd jacobian() const;
  /// Gauss-Newton matrix and gradient of the loss with the robust weights at `e`.
  void normal_equations(const Vector& e, Eigen::MatrixXd& matrix, Vector& gradient) const;

  const Calibration& base_;
  std::span<const double> weights_;
  const LogErrors& errors_;
  const FitOptions& options_;
  std::vector<Knob> knobs_;
  Vector u_;
};

Eigen::MatrixXd Solver::jacobian() const {
  Eigen::MatrixXd out(static_cast<Eigen::Index>(weights_.size()), u_.size());
  for (Eigen::Index j = 0; j < u_.size(); ++j) {
    const Knob& knob = knobs_[static_cast<std::size_t>(j)];
    Vector above = u_;
    Vector below = u_;
    above[j] = knob.within(u_[j] + kStep);
    below[j] = knob.within(u_[j] - kStep);
    out.col(j) = (errors_at(above) - errors_at(below)) / (above[j] - below[j]);
  }
  return out;
}

void Solver::normal_equations(const Vector& e, Eigen::MatrixXd& matrix, Vector& gradient) const {
  const Eigen::MatrixXd J = jacobian();
  Vector weight(e.size());
  for (Eigen::Index i = 0; i < e.size(); ++i) {
    const double r = e[i] / options_.noise;
    weight[i] = weights_[static_cast<std::size_t>(i)] /
                (std::sqrt(1 + r * r) * options_.noise * options_.noise);
  }
  matrix = J.transpose() * weight.asDiagonal() * J;
  matrix.diagonal().array() += 1.0;
  gradient = J.transpose() * weight.cwiseProduct(e) + u_;
}

Fit Solver::solve() {
  Fit fit;
  Vector e = errors_at(u_);
  double best = loss(e, u_);
  double damping = 1e-3;
  Eigen::MatrixXd matrix;
  Vector gradient;
  bool fresh = true;
  for (; fit.iterations < options_.max_iterations && damping < 1e6; ++fit.iterations) {
    if (fresh) normal_equations(e, matrix, gradient);
    Eigen::MatrixXd damped = matrix;
    damped.diagonal() *= 1 + damping;
    Vector next = u_ - damped.ldlt().solve(gradient);
    for (Eigen::Index j = 0; j < next.size(); ++j) {
      next[j] = knobs_[static_cast<std::size_t>(j)].within(next[j]);
    }
    const Vector tried = errors_at(next);
    const double after = loss(tried, next);
    fresh = after < best;
    if (!fresh) {
      damping *= 4;
      continue;
    }
    const bool done = best - after < 1e-4 * best;
    u_ = next;
    e = tried;
    best = after;
    damping = std::max(damping / 4, 1e-9);
    if (done) break;
  }
  normal_equations(e, matrix, gradient);
  const Eigen::MatrixXd covariance = matrix.inverse();
  fit.calibration = at(u_);
  fit.errors.assign(e.data(), e.data() + e.size());
  fit.covariance.assign(covariance.data(), covariance.data() + covariance.size());
  for (std::size_t j = 0; j < knobs_.size(); ++j) {
    const auto at_j = static_cast<Eigen::Index>(j);
    const double sigma = std::sqrt(std::max(0.0, covariance(at_j, at_j)));
    fit.rates.push_back({.key = knobs_[j].parameter().key,
                         .prior = knobs_[j].prior(),
                         .value = knobs_[j].value(u_[at_j]),
                         .low = knobs_[j].value(u_[at_j] - sigma),
                         .high = knobs_[j].value(u_[at_j] + sigma),
                         .at_bound = at_bound(knobs_[j].parameter(), knobs_[j].value(u_[at_j])),
                         .learned = std::clamp(1 - sigma * sigma, 0.0, 1.0)});
  }
  return fit;
}

}  // namespace

bool at_bound(const FitParameter& parameter, double value) {
  constexpr double kRounding = 1e-9;
  return value != 0 &&
         (value <= parameter.min * (1 + kRounding) || value >= parameter.max * (1 - kRounding));
}

const std::vector<FitParameter>& time_parameters() {
  // Spreads: efficiencies of published GEMM and attention tables scatter by 12-25 % between
  // machines and releases; latencies, ramps and host costs by factors of 1.5-2.5. Memory, links,
  // NICs and fp8 against bf16 (0.96 and 0.95 on B300 and H200, TransformerEngine's GEMM benchmark)
  // are measured alone and scatter less: with more they took what other terms miss. The fixed time
  // per step and the stragglers absorb the errors of other terms unless constrained: at 1.0 and
  // 0.007 the fit gave ten times their true value, and held-out rows were predicted worse.
  static const std::vector<FitParameter> all = {
      {"gemm_efficiency", "", 0.12, false, 0.2, 1.0},
      {"fp8_efficiency", "", 0.05, false, 0.3, 1.05},
      {"moe_speed_factor", "", 0.35, false, 0.1, 1.5},
      {"gemm_ramp", "", 0.5, false, 1, 2000},
      {"fp8_ramp", "", 0.3, false, 0.05, 3},
      {"kernel_fixed", "", 0.6, false, 0.3, 50},
      {"attention_forward", "attention_backward", 0.15, false, 0.05, 0.9},
      {"attention_overhead", "", 2, true, 0, 20},
      {"memory_efficiency", "", 0.1, false, 0.2, 1.0},
      {"optimizer_efficiency", "", 0.4, false, 0.05, 1.0},
      {"host_layer_forward", "host_layer_backward", 0.7, false, 5, 20000},
      {"host_experts", "", 0.9, false, 50, 20000},
      {"step_fixed", "", 0.4, false, 10, 2e6},
      {"straggler_per_doubling", "", 0.003, true, 0, 0.05},
      {"link_efficiency", "", 0.08, false, 0.2, 1.0},
      {"nic_efficiency", "", 0.08, false, 0.2, 1.0},
      {"intra_hop", "collective_base", 0.5, false, 0.1, 100},
      {"inter_hop", "", 0.5, false, 1, 500},
      {"layer_latency_factor", "", 0.5, false, 0.05, 10},
      {"ring_latency_factor", "", 0.5, false, 0.005, 3},
      {"bulk_latency_factor", "", 0.7, false, 0.01, 10},
      {"host_latency_factor", "", 0.3, false, 0.1, 10},
      {"dp_rank_latency", "", 200, true, 0, 5000},
      {"dp_overlap", "", 0.3, true, 0, 1},
      {"tp_overlap", "", 0.3, true, 0, 1},
      {"overlap_slowdown", "", 0.1, true, 0, 0.6},
  };
  return all;
}

const std::vector<FitParameter>& memory_parameters() {
  // A CUDA context with its libraries takes 0.4-1.2 GiB in every report of an idle process; what
  // nvidia-smi shows beyond is cached, and varies by several GiB between programs.
  static const std::vector<FitParameter> all = {
      {"allocator_reserve", "", 0.1, true, 0, 1.0},
      {"pending_collective_share", "", 0.2, true, 0, 2.0},
      {"context", "", 0.2, false, 400, 1200},
      {"nvidia_smi_cache", "", 4000, true, 0, 16000},
      {"nccl_per_communicator", "", 0.5, false, 50, 1000},
  };
  return all;
}

Fit fit_rates(const Calibration& base, std::span<const FitParameter> parameters,
              std::span<const double> weights, const LogErrors& errors, const FitOptions& options) {
  EXPECTS(options.noise > 0, "the noise is what errors are measured in");
  return Solver(base, parameters, weights, errors, options).solve();
}

std::vector<double> slopes_at(const Calibration& calibration,
                              std::span<const FitParameter> parameters,
                              const std::function<double(const Calibration&)>& value) {
  std::vector<double> out;
  for (const FitParameter& parameter : parameters) {
    const Knob knob(calibration, parameter);
    const auto turned = [&](double u) {
      Calibration c = calibration;
      knob.turn(c, u);
      return value(c);
    };
    const double above = knob.within(kStep);
    const double below = knob.within(-kStep);
    out.push_back(above > below ? (turned(above) - turned(below)) / (above - below) : 0);
  }
  return out;
}

double covariance_of(std::span<const double> g, std::span<const double> h,
                     std::span<const double> covariance) {
  EXPECTS(g.size() == h.size() && covariance.size() == g.size() * g.size(), "rates of one fit");
  double sum = 0;
  for (std::size_t i = 0; i < g.size(); ++i) {
    for (std::size_t j = 0; j < h.size(); ++j) sum += g[i] * covariance[i * g.size() + j] * h[j];
  }
  return sum;
}

void write_fit_sources(const Fit& fit, std::span<const FitParameter> parameters, int runs,
                       double learned, Calibration& calibration) {
  for (std::size_t j = 0; j < fit.rates.size(); ++j) {
    const FittedRate& rate = fit.rates[j];
    if (rate.learned < learned) continue;
    const std::string text =
        fmt::format("fitted to {} runs: {:.4g} ({:.4g} to {:.4g}), prior {:.4g}, learned {:.0f} %",
                    runs, rate.value, rate.low, rate.high, rate.prior, 100 * rate.learned);
    set_source(calibration, calibration_field(rate.key), text);
    if (!parameters[j].along.empty()) {
      set_source(calibration, calibration_field(parameters[j].along),
                 "with " + rate.key + ": " + text);
    }
  }
}

}  // namespace echelon
