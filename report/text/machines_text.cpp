#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/parse_quantity.hpp"
#include "core/model/parameter_groups.hpp"
#include "report/format.hpp"
#include "report/machines.hpp"
#include "report/text/table.hpp"
#include "topologies/description/description.hpp"

namespace echelon {

namespace {

/// Four digits; whole numbers of five digits and more as they are, not as powers of ten.
std::string significant(double value) {
  constexpr double kFiveDigits = 9999.5;
  return value < kFiveDigits ? fmt::format("{:.4g}", value) : fmt::format("{:.0f}", value);
}

std::string gbit(BytesPerSecond rate) { return significant(rate.in(1_Gbps)); }

BytesPerSecond node_network(const NodeSpec& node) { return node.nic * node.nics; }

std::string rate_or_none(FlopsPerSecond rate) {
  return rate > FlopsPerSecond{} ? significant(rate.in(1_TFLOPS)) + " TFLOP/s" : "none";
}

std::string_view name_of(Activation activation) {
  switch (activation) {
    case Activation::gelu: return "GELU";
    case Activation::relu: return "ReLU";
    case Activation::squared_relu: return "squared ReLU";
    case Activation::silu: return "SiLU";
  }
  return "";
}

std::string_view name_of(PositionEmbedding position) {
  switch (position) {
    case PositionEmbedding::learned: return "learned positions";
    case PositionEmbedding::rope: return "rotary positions";
    case PositionEmbedding::alibi: return "ALiBi";
    case PositionEmbedding::none: return "no positions";
  }
  return "";
}

std::string_view name_of(TokenMixer mixer) {
  switch (mixer) {
    case TokenMixer::attention: return "with attention";
    case TokenMixer::global_attention: return "with full attention";
    case TokenMixer::delta_net: return "with a gated delta net";
    case TokenMixer::state_space: return "with a state space";
    case TokenMixer::side_by_side: return "with attention beside a state space";
    case TokenMixer::short_convolution: return "with a short convolution";
    case TokenMixer::none: return "an MLP alone";
  }
  return "";
}

/// "48: 12 with attention, 36 with a gated delta net; all with experts", "34: 29 with attention
/// within 1,024 tokens".
std::string words_of_layers(const ModelSpec& model) {
  std::vector<std::string> mixers;
  for (const TokenMixer mixer : kTokenMixers) {
    const int with = model.layers_with(mixer);
    if (with > 0 && with < model.layers) {
      mixers.push_back(fmt::format("{} {}", with, name_of(mixer)));
    }
    if (mixer != TokenMixer::attention || model.windowed_layers == 0) continue;
    const std::string window = fmt::format("within {} tokens", grouped(model.sliding_window));
    if (with < model.layers) {
      mixers.back() += model.windowed_layers == with
                           ? " " + window
                           : fmt::format(" ({} of them {})", model.windowed_layers, window);
    } else {
      mixers.push_back(fmt::format("{} with attention {}", model.windowed_layers, window));
    }
  }
  std::string out = std::to_string(model.layers);
  if (!mixers.empty()) out += fmt::format(": {}", fmt::join(mixers, ", "));
  if (model.moe.experts == 0) return out;
  const int experts = model.expert_layers();
  return out + (mixers.empty() ? ": " : "; ") +
         (experts == model.layers ? "all" : std::to_string(experts)) + " with experts";
}

std::string words_of_attention(const ModelSpec& model) {
  if (!model.latent()) {
    std::string out = fmt::format("{} heads of {}, {} of keys and values", model.heads,
                                  model.head_dim, model.kv_heads);
    if (model.global.layers == 0) return out;
    return out + fmt::format("; in layers with full attention of {}, {} of keys and values",
                             model.global.head_dim, model.global.kv_heads);
  }
  const LatentAttention& mla = model.mla;
  std::string out = fmt::format(
      "{} heads of {} + {} rotary, values of {}; latent of keys and "
      "values {}",
      model.heads, mla.qk_nope_head_dim, mla.qk_rope_head_dim, mla.v_head_dim, mla.kv_lora_rank);
  if (mla.q_lora_rank > 0) out += fmt::format(", of queries {}", grouped(mla.q_lora_rank));
  if (model.sparse()) {
    out += fmt::format("; the best {} keys, chosen by an indexer of {} heads of {}",
                       grouped(model.dsa.topk), model.dsa.index_heads, model.dsa.index_head_dim);
  }
  return out;
}

std::string words_of_experts(const MixtureOfExperts& moe) {
  std::string out = fmt::format("{}, of which a token visits {}, {} wide", grouped(moe.experts),
                                moe.experts_per_token, grouped(moe.expert_ffn_hidden));
  if (moe.shared_ffn_hidden > 0) {
    out += fmt::format("; shared ones {} wide", grouped(moe.shared_ffn_hidden));
  }
  if (moe.latent_hidden > 0) out += fmt::format("; of a latent of {}", grouped(moe.latent_hidden));
  return out;
}

}  // namespace

std::string clusters_text(const std::vector<ClusterTopology>& clusters, const TextStyle& style) {
  Table table({{"name", Table::Align::left, 0},
               {"GPUs"},
               {"per node"},
               {"GPU", Table::Align::left, 0},
               {"memory GiB", Table::Align::right, 2},
               {"link GB/s", Table::Align::right, 3},
               {"node network Gbit/s", Table::Align::right, 1},
               {"USD/GPU h", Table::Align::right, 4}});
  for (const ClusterTopology& cluster : clusters) {
    const auto price = cluster.price_per_gpu_hour();
    table.add({cluster.name(), grouped(cluster.gpus()), std::to_string(cluster.node().gpus),
               cluster.gpu().name, gib(cluster.gpu().memory),
               fmt::format("{:.4g}", cluster.node().gpu_link.in(1_GBps)),
               gbit(node_network(cluster.node())),
               price ? fmt::format("{:.2f}", price->in(kDollar)) : "-"});
  }
  return table.text(style) + "\n" +
         folded(
             "GPUs: the size of the description; --gpus asks for another. Link: one GPU, one "
             "direction. `plan topo show NAME` says more; a description file of your own works "
             "wherever a name does.",
             "", style);
}

std::string cluster_text(const ClusterTopology& cluster, const TextStyle& style) {
  const GpuSpec& gpu = cluster.gpu();
  const NodeSpec& node = cluster.node();
  Table table({{"", Table::Align::left, 0}, {"", Table::Align::left, 0}});
  const auto add = [&](const char* name, std::string value) {
    table.add({name, std::move(value)});
  };
  add("size", fmt::format("{}: {} of {}, NVLink or PCIe domain of {}",
                          counted(cluster.gpus(), "GPU"), counted(cluster.nodes(), "node"),
                          cluster.gpus_per_node(), cluster.domain_gpus()));
  if (cluster.machine().nvlink_tiers > 0) {
    add("larger jobs", "equally many GPUs of each NVLink domain, where their nodes divide so");
  }
  add("GPU", gpu.compute_capability > 0 ? fmt::format("{}, compute capability {:.1f}, {} SMs",
                                                      gpu.name, gpu.compute_capability, gpu.sms)
                                        : fmt::format("{}, {} CUs", gpu.name, gpu.sms));
  add("GPU memory", fmt::format("{:.2f} GiB at {} GB/s, L2 {:.4g} MiB", gpu.memory.in(1_GiB),
                                significant(gpu.hbm.in(1_GBps)), gpu.l2.in(1_MiB)));
  add("dense peak",
      fmt::format("bf16 {}, fp8 {}, fp16 {}, tf32 {}", rate_or_none(gpu.bf16),
                  rate_or_none(gpu.fp8), rate_or_none(gpu.fp16), rate_or_none(gpu.tf32)));
  add("in the node",
      fmt::format("{}, {:.4g} GB/s of one GPU in one direction, PCIe {:.4g} GB/s{}",
                  node.interconnect, node.gpu_link.in(1_GBps), node.pcie.in(1_GBps),
                  cluster.machine().pcie.peer_access ? "" : ", between GPUs through host memory"));
  add("network",
      node.nics == 0
          ? std::string("none")
          : fmt::format("{}{} of {} Gbit/s = {:.4g} GB/s of one node in one direction",
                        node.nic_kind ? fmt::format("{}, ", name_of(*node.nic_kind)) : "",
                        counted(node.nics, "NIC"), gbit(node.nic), node_network(node).in(1_GBps)));
  for (const FabricTier& tier : cluster.tiers()) {
    add("fabric",
        fmt::format("{}: {} units, oversubscription {:.3g}, {} more latency", tier.name,
                    grouped(tier.multiplicity), tier.oversubscription, duration(tier.latency)));
  }
  add("CPU memory", node.cpu_memory > Bytes{}
                        ? fmt::format("{} of one node", with_gib(node.cpu_memory))
                        : std::string("not described: no plan offloads to it"));
  if (node.nvme) add("NVMe", fmt::format("{:.4g} TB of one node", node.nvme->in(1_TB)));
  if (const auto price = cluster.price_per_gpu_hour()) {
    add("price", fmt::format("{:.2f} USD per GPU hour", price->in(kDollar)));
  }
  if (const auto mtbf = cluster.mtbf_per_node()) {
    add("failures", fmt::format("one node fails every {}", duration(*mtbf)));
  }
  std::string out = painted(cluster.name(), Paint::bold, style) + "\n";
  if (!cluster.description().empty()) out += folded(cluster.description(), "", style);
  out += "\n" + table.text(style);
  const std::string& notes = cluster.machine().notes;
  return notes.empty() ? out : out + "\n" + folded(notes, "", style);
}

std::string check_text(const ClusterCheck& check, bool brief, const TextStyle& style) {
  std::string out;
  const auto list = [&](const std::string& title, const std::vector<std::string>& lines) {
    if (lines.empty()) return;
    out += "\n" + painted(title, Paint::bold, style) + "\n";
    for (const std::string& line : lines) out += folded(line, "  ", style);
  };
  if (!brief) list("verified", check.verified);
  list(counted(static_cast<std::int64_t>(check.warnings.size()), "warning"), check.warnings);
  return out;
}

std::string models_text(const std::vector<ListedModel>& models, const TextStyle& style) {
  Table table({{"name", Table::Align::left, 0},
               {"parameters"},
               {"layers"},
               {"hidden"},
               {"heads"},
               {"kv heads", Table::Align::right, 2},
               {"vocabulary", Table::Align::right, 4},
               {"context", Table::Align::right, 3},
               {"also known as", Table::Align::left, 1}});
  for (const ListedModel& model : models) {
    const ModelSpec& spec = model.spec;
    table.add({model.entry.name, human_count(static_cast<double>(spec.parameters())),
               std::to_string(spec.layers), std::to_string(spec.hidden), std::to_string(spec.heads),
               std::to_string(spec.kv_heads), grouped(spec.vocab),
               spec.max_positions > 0 ? grouped(spec.max_positions) : "-",
               fmt::format("{}", fmt::join(model.entry.aliases, ", "))});
  }
  return table.text(style) + "\n" +
         folded(
             "A path to a HuggingFace config.json works wherever a name does. `plan models "
             "NAME|FILE` shows one model as it was read.",
             "", style);
}

std::string model_text(const ModelReading& reading, int sequence, const TextStyle& style) {
  const ModelSpec& model = reading.model;
  Table shapes({{"", Table::Align::left, 0}, {"", Table::Align::left, 0}});
  const auto add = [&](const char* name, std::string value) {
    shapes.add({name, std::move(value)});
  };
  add("layers", words_of_layers(model));
  std::string width = grouped(model.hidden);
  if (model.ffn_hidden > 0) {
    width += fmt::format(", MLP {} ({}{})", grouped(model.ffn_hidden), name_of(model.activation),
                         model.gated_mlp ? ", gated" : "");
  }
  add("hidden", std::move(width));
  if (model.heads > 0) add("attention", words_of_attention(model));
  if (model.moe.experts > 0) add("experts", words_of_experts(model.moe));
  add("vocabulary", fmt::format("{}, {}", grouped(model.vocab),
                                model.tied_embeddings ? "the head shares the embedding"
                                                      : "the head has weights of its own"));
  add("context",
      fmt::format("{}, {}", model.max_positions > 0 ? grouped(model.max_positions) : "not stated",
                  name_of(model.position)));
  if (model.prediction_modules > 0) {
    add("not counted", counted(model.prediction_modules, "module") + " of multi-token prediction");
  }
  if (!model.source.empty()) add("source", model.source);

  const bool mixture = model.active_parameters() != model.parameters();
  Table parameters({{"parameters", Table::Align::left, 0}, {"all"}, {"of a token"}});
  const auto row = [&](std::string_view name, std::int64_t count, std::int64_t active) {
    parameters.add({std::string(name), grouped(count), mixture ? grouped(active) : ""});
  };
  for (const ParameterGroup& group : parameter_groups(model)) {
    row(group.name, group.count, group.active);
  }
  row("total", model.parameters(), model.active_parameters());
  parameters.drop_constant(2, "");

  const auto gigaflop = [&](bool causal) {
    return model.flops_per_token(sequence, false, causal).in(1_GFLOP);
  };
  std::string out =
      painted(model.name, Paint::bold, style) +
      fmt::format(" ({}): {} parameters{}\n\n", model.architecture,
                  human_count(static_cast<double>(model.parameters())),
                  mixture ? fmt::format(", {} of them visited by a token",
                                        human_count(static_cast<double>(model.active_parameters())))
                          : "");
  out += shapes.text(style) + "\n" + parameters.text(style) + "\n";
  out +=
      folded(fmt::format("Model FLOPs of a token, forward and backward, in sequences of {} tokens: "
                         "{:.4g} GFLOP (6N + 12LhT), {:.4g} with causal scores alone.",
                         grouped(sequence), gigaflop(false), gigaflop(true)),
             "", style);
  for (const std::string& remark : reading.remarks) out += folded("• " + remark, "  ", style);
  return out;
}

}  // namespace echelon
