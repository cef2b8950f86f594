#include <algorithm>
#include <utility>

#include "core/json/json_io.hpp"
#include "core/model/parameter_groups.hpp"
#include "core/plan/plan_json_io.hpp"
#include "report/json/candidate_json_io.hpp"
#include "report/machines.hpp"

namespace echelon {

namespace {

double gigabytes(BytesPerSecond rate) { return finite(rate.in(1_GBps), "a bandwidth"); }

Json peak_json(const GpuSpec& gpu) {
  return Json{{"bf16_tflops", gpu.bf16.in(1_TFLOPS)}, {"fp16_tflops", gpu.fp16.in(1_TFLOPS)},
              {"fp8_tflops", gpu.fp8.in(1_TFLOPS)},   {"tf32_tflops", gpu.tf32.in(1_TFLOPS)},
              {"fp32_tflops", gpu.fp32.in(1_TFLOPS)}, {"fp64_tflops", gpu.fp64.in(1_TFLOPS)}};
}

Json described(const ClusterTopology& cluster) {
  const GpuSpec& gpu = cluster.gpu();
  const NodeSpec& node = cluster.node();
  Json tiers = Json::array();
  for (const FabricTier& tier : cluster.tiers()) {
    tiers.push_back({{"name", tier.name},
                     {"multiplicity", tier.multiplicity},
                     {"oversubscription", tier.oversubscription},
                     {"latency_seconds", tier.latency.in(kSecond)}});
  }
  Json price = nullptr;
  if (const auto usd = cluster.price_per_gpu_hour()) price = usd->in(kDollar);
  Json failures = nullptr;
  if (const auto mtbf = cluster.mtbf_per_node()) failures = mtbf->in(kSecond);
  return Json{{"name", cluster.name()},
              {"description", cluster.description()},
              {"gpus", cluster.gpus()},
              {"nodes", cluster.nodes()},
              {"gpus_per_node", cluster.gpus_per_node()},
              {"domain_gpus", cluster.domain_gpus()},
              {"gpu",
               {{"name", gpu.name},
                {"memory_bytes", whole_bytes(gpu.memory)},
                {"hbm_GBps", gigabytes(gpu.hbm)},
                {"sms", gpu.sms},
                {"compute_capability", gpu.compute_capability},
                {"dense_peak", peak_json(gpu)}}},
              {"node",
               {{"gpus", node.gpus},
                {"interconnect", node.interconnect},
                {"gpu_link_GBps", gigabytes(node.gpu_link)},
                {"pcie_GBps", gigabytes(node.pcie)},
                {"nics", node.nics},
                {"nic_GBps", gigabytes(node.nic)},
                {"nic_kind", node.nic_kind ? Json(name_of(*node.nic_kind)) : Json()},
                {"cpu_memory_bytes", whole_bytes(node.cpu_memory)},
                {"storage_GBps", gigabytes(cluster.storage_bandwidth() / cluster.nodes())}}},
              {"fabric", std::move(tiers)},
              {"usd_per_gpu_hour", std::move(price)},
              {"mtbf_per_node_seconds", std::move(failures)}};
}

}  // namespace

std::string clusters_json(const std::vector<ClusterTopology>& clusters) {
  Json list = Json::array();
  for (const ClusterTopology& cluster : clusters) list.push_back(described(cluster));
  return dumped(Json{{"schema", 1}, {"clusters", std::move(list)}});
}

std::string cluster_json(const ClusterTopology& cluster) {
  Json document{{"schema", 1}};
  document.update(described(cluster));
  return dumped(document);
}

std::string check_json(const ClusterTopology& cluster, const ClusterCheck& check) {
  Json document{{"schema", 1}};
  document.update(described(cluster));
  document["verified"] = check.verified;
  document["warnings"] = check.warnings;
  return dumped(document);
}

std::string models_json(const std::vector<ListedModel>& models) {
  Json list = Json::array();
  for (const ListedModel& model : models) {
    const ModelSpec& spec = model.spec;
    list.push_back({{"name", model.entry.name},
                    {"aliases", model.entry.aliases},
                    {"architecture", spec.architecture},
                    {"parameters", spec.parameters()},
                    {"layers", spec.layers},
                    {"hidden", spec.hidden},
                    {"heads", spec.heads},
                    {"kv_heads", spec.kv_heads},
                    {"vocab", spec.vocab},
                    {"max_positions", spec.max_positions},
                    {"source", spec.source}});
  }
  return dumped(Json{{"schema", 1}, {"models", std::move(list)}});
}

std::string model_json(const ModelReading& reading, int sequence) {
  const ModelSpec& spec = reading.model;
  Json groups = Json::array();
  for (const ParameterGroup& group : parameter_groups(spec)) {
    groups.push_back(
        {{"group", group.name}, {"parameters", group.count}, {"active", group.active}});
  }
  const auto flops = [&](bool causal) {
    return spec.flops_per_token(sequence, false, causal).in(kFlop);
  };
  return dumped(
      Json{{"schema", 1},
           {"model", Json::parse(model_to_json(spec))},
           {"parameters", spec.parameters()},
           {"active_parameters", spec.active_parameters()},
           {"parameter_groups", std::move(groups)},
           {"model_flops_per_token",
            {{"sequence", sequence}, {"all_scores", flops(false)}, {"causal", flops(true)}}},
           {"remarks", reading.remarks}});
}

}  // namespace echelon
