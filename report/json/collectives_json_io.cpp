#include "core/json/json_io.hpp"
#include "core/plan/plan_json_io.hpp"
#include "report/collectives.hpp"

namespace echelon {

namespace {

Json error_json(const std::optional<double>& error) {
  return error ? Json(finite(*error, "an error")) : Json(nullptr);
}

}  // namespace

std::string collectives_json(const std::vector<CollectiveRow>& rows,
                             const std::optional<CollectiveFitReport>& fit) {
  Json list = Json::array();
  for (const CollectiveRow& row : rows) {
    list.push_back({{"op", name_of(row.kind)},
                    {"ranks", row.ranks},
                    {"nodes", row.nodes},
                    {"bytes", row.bytes},
                    {"seconds", finite(row.time.in(kSecond), "a collective's time")},
                    {"algbw_GBps", finite(row.algorithm_bandwidth.in(1_GBps), "a bandwidth")},
                    {"busbw_GBps", finite(row.bus_bandwidth.in(1_GBps), "a bandwidth")},
                    {"algorithm", row.algorithm},
                    {"protocol", row.protocol},
                    {"layer", name_of(row.layer)}});
  }
  Json document{{"rows", std::move(list)}};
  if (fit) {
    document["fit"] = {{"table", fit->table},
                       {"rows", fit->rows},
                       {"fitted_rows", fit->fitted},
                       {"bandwidth", finite(fit->fit.bandwidth, "a factor")},
                       {"latency", finite(fit->fit.latency, "a factor")},
                       {"error_before", finite(fit->before, "an error")},
                       {"error_after", finite(fit->after, "an error")},
                       {"error_sizes_left_out", error_json(fit->left_out.sizes)},
                       {"error_ops_left_out", error_json(fit->left_out.kinds)}};
  }
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace echelon
