#include "costmodel/collectives/collectives_fit.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <vector>

namespace echelon {
namespace {

constexpr double kPull = 0.003;  ///< towards the prior
constexpr double kMostEfficiency = 1.2;
constexpr double kMostFactor = 50;

struct LogSum {
  double sum = 0;
  int rows = 0;

  [[nodiscard]] std::optional<double> error() const {
    if (rows == 0) return std::nullopt;
    return std::exp(sum / rows) - 1;
  }
};

LogSum log_sum(std::span<const PlacedCollective> rows, const Calibration& calibration, Bytes least,
               Bytes most) {
  LogSum total;
  for (const PlacedCollective& row : rows) {
    if (row.bytes < least || !(row.bytes < most)) continue;
    const Seconds predicted = collective_time(row.kind, row.bytes, apply(row.network, calibration));
    total.sum += std::abs(std::log(predicted / row.time));
    ++total.rows;
  }
  return total;
}

using PlacedRows = std::vector<PlacedCollective>;

/// Fits the rows outside `left_out` and adds the error on those in it.
template <class Predicate>
void add_left_out(std::span<const PlacedCollective> rows, const Calibration& calibration,
                  Predicate left_out, LogSum& total) {
  PlacedRows seen;
  PlacedRows unseen;
  for (const PlacedCollective& row : rows) {
    if (row.bytes >= kFitFrom) (left_out(row) ? unseen : seen).push_back(row);
  }
  if (seen.empty()) return;
  const LogSum part = log_sum(unseen, fitted(calibration, fit_collectives(seen, calibration)),
                              kFitFrom, Bytes{1e18});
  total.sum += part.sum;
  total.rows += part.rows;
}

}  // namespace

Calibration fitted(const Calibration& calibration, const CollectiveFit& fit) {
  Calibration result = calibration;
  result.link_efficiency *= fit.bandwidth;
  result.nic_efficiency *= fit.bandwidth;
  result.collective_base *= fit.latency;
  result.intra_hop *= fit.latency;
  result.inter_hop *= fit.latency;
  result.switch_base *= fit.latency;
  return result;
}

std::optional<double> log_mean_error(std::span<const PlacedCollective> rows,
                                     const Calibration& calibration, Bytes least, Bytes most) {
  return log_sum(rows, calibration, least, most).error();
}

CollectiveFit fit_collectives(std::span<const PlacedCollective> rows,
                              const Calibration& calibration) {
  struct Point {
    double bandwidth = 0, latency = 0;  // logarithms
  };
  const double most_bandwidth =
      std::log(std::min(kMostFactor, kMostEfficiency / std::max(calibration.link_efficiency,
                                                                calibration.nic_efficiency)));
  const double most = std::log(kMostFactor);
  const auto cost = [&](Point at) {
    const CollectiveFit fit{std::exp(at.bandwidth), std::exp(at.latency)};
    const LogSum total = log_sum(rows, fitted(calibration, fit), kFitFrom, Bytes{1e18});
    const double mean = total.rows == 0 ? 0 : total.sum / total.rows;
    return mean + kPull * (std::abs(at.bandwidth) + std::abs(at.latency));
  };
  constexpr std::array<Point, 8> kCompass = {
      {{1, 0}, {-1, 0}, {0, 1}, {0, -1}, {1, 1}, {-1, -1}, {1, -1}, {-1, 1}}};
  constexpr double kLeastStep = 1.0 / 256;
  Point best;
  double least = cost(best);
  for (double step = 1; step >= kLeastStep;) {
    Point next = best;
    for (const Point& way : kCompass) {
      const Point tried{std::clamp(best.bandwidth + step * way.bandwidth, -most, most_bandwidth),
                        std::clamp(best.latency + step * way.latency, -most, most)};
      if (const double at = cost(tried); at < least) {
        least = at;
        next = tried;
      }
    }
    if (next.bandwidth == best.bandwidth && next.latency == best.latency) step /= 2;
    best = next;
  }
  return {std::exp(best.bandwidth), std::exp(best.latency)};
}

LeftOut left_out_errors(std::span<const PlacedCollective> rows, const Calibration& calibration) {
  std::set<double> sizes;
  std::set<CollectiveKind> kinds;
  for (const PlacedCollective& row : rows) {
    if (row.bytes < kFitFrom) continue;
    sizes.insert(row.bytes.in(kByte));
    kinds.insert(row.kind);
  }
  LogSum by_size;
  for (const std::ptrdiff_t parity : {0, 1}) {
    const auto left_out = [&](const PlacedCollective& row) {
      return std::distance(sizes.begin(), sizes.find(row.bytes.in(kByte))) % 2 == parity;
    };
    if (sizes.size() > 1) add_left_out(rows, calibration, left_out, by_size);
  }
  LogSum by_kind;
  for (const CollectiveKind kind : kinds) {
    const auto left_out = [&](const PlacedCollective& row) { return row.kind == kind; };
    if (kinds.size() > 1) add_left_out(rows, calibration, left_out, by_kind);
  }
  return {by_size.error(), by_kind.error()};
}

}  // namespace echelon
