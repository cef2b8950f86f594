#include <fmt/format.h>

#include <algorithm>

#include "core/json/json_io.hpp"
#include "topologies/import/this_machine.hpp"

namespace echelon {

namespace {

constexpr double kCoreBandwidth = 50;       // GB/s
constexpr double kShareForRanks = 7.0 / 8;  // of the memory

Json quantity(double value, const char* unit, const std::string& source) {
  return Json{{"value", value}, {"unit", unit}, {"source", source}};
}

}  // namespace

int cores_of_rank(const HostFacts& host, std::int64_t ranks) {
  return static_cast<int>(std::max<std::int64_t>(1, host.cores / std::max<std::int64_t>(1, ranks)));
}

Result<ClusterTopology> this_machine(const HostFacts& host, std::int64_t wanted) {
  const std::int64_t ranks = wanted > 0 ? wanted : std::min(host.cores, kMaxRanksHere);
  if (ranks > kMaxRanksHere) {
    return input_error("--gpus", fmt::format("{} ranks on one machine", ranks),
                       fmt::format("at most {}", kMaxRanksHere));
  }
  const int cores = cores_of_rank(host, ranks);
  const double gflops = cores * host.clock_ghz * host.flops_per_cycle;
  const std::string rate =
      fmt::format("{} cores · {:.3g} GHz ({}) · {:.0f} FLOP per cycle ({})", cores, host.clock_ghz,
                  host.clock_source, host.flops_per_cycle, host.simd_source);
  const std::string bandwidth =
      "assumed: 50 GB/s per core, twice a DDR4-3200 channel, as most of a layer fits in caches";
  const std::string split = fmt::format("{} ranks share {} cores", ranks, host.cores);
  const double gigabytes = kShareForRanks * host.memory.in(1_GB) / static_cast<double>(ranks);
  const Json gpu{{"name", kCpuRank},
                 {"memory", quantity(gigabytes, "GB", "7/8 of the machine's memory, " + split)},
                 {"hbm", quantity(cores * kCoreBandwidth, "GB/s", bandwidth)},
                 {"fp32", quantity(gflops, "GFLOP/s", rate)},
                 {"fp64", quantity(gflops / 2, "GFLOP/s", "half the lanes of fp32")},
                 {"bf16", quantity(gflops, "GFLOP/s", "as fp32: products are computed in fp32")},
                 {"sms", {{"value", 1}, {"source", "products are not split into waves"}}},
                 {"boost", quantity(1000 * host.clock_ghz, "MHz", host.clock_source)},
                 {"l2", quantity(1, "MB", "assumed: a second-level cache")},
                 {"launch", quantity(0.01, "us", "a function call")}};
  const Json node{
      {"name", "this computer"},
      {"gpus", {{"value", ranks}, {"source", "--gpus"}}},
      {"cores", {{"value", host.cores}, {"source", "cores that the program may use"}}},
      {"interconnect",
       {{"kind", "pcie"}, {"latency", quantity(5, "us", "assumed: one thread wakes another")}}},
      {"pcie", {{"gpu_link", quantity(kCoreBandwidth, "GB/s", bandwidth)}}},
      {"cpu_memory", quantity(host.memory.in(1_GB), "GB", "the operating system")}};
  const Json root{{"schema", 1},
                  {"name", kThisMachine},
                  {"description", "CPU cores of this machine; each \"GPU\" is a rank"},
                  {"gpu", gpu},
                  {"node", node}};
  return ClusterTopology::parse(root.dump(), kThisMachine, ranks);
}

}  // namespace echelon
