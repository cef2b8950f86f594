#include <algorithm>
#include <string>

#include "tests/support/catch.hpp"
#include "topologies/description/catalog.hpp"

namespace echelon {
namespace {

UniformMachine racks() {
  return {.name = "18 x GB200",
          .gpu = load_gpu("gb200", "a test")->spec,
          .gpus_per_node = 4,
          .nvlink = 900_GBps,
          .pcie = 450_GBps,
          .nic = 50_GBps,
          .nodes_per_domain = 16};
}

/// The file that describes the same machine, except for its GPU's price.
std::string written(const std::string& interconnect, const std::string& fabric) {
  const std::string text = R"({"schema": 1, "name": "18 x GB200", "gpu": "GB200", "node": {
      "gpus": 4, "interconnect": )" +
                           interconnect + R"(, "pcie": {"gpu_link": "450 GB/s"},
      "nics": {"count": 4, "rate": "400 Gbps"}})" +
                           fabric + "}";
  MachineDescription machine = parse_machine(text, "a test").value();
  machine.price_per_gpu_hour.reset();
  return canonical_json(machine);
}

TEST_CASE("a machine described by values equals the one of a file") {
  CHECK(canonical_json(*describe(racks())) ==
        written(R"({"kind": "nvswitch", "per_gpu": "900 GB/s"})",
                R"(, "fabric": {"tiers": [
                    {"name": "nvlink-rack", "kind": "nvlink", "multiplicity": 16, "latency": "0 us"},
                    {"name": "network", "multiplicity": 1000000, "latency": "0 us"}]})"));
  UniformMachine cards = racks();
  cards.nvlink.reset();
  cards.nodes_per_domain = 1;
  CHECK(canonical_json(*describe(cards)) == written(R"({"kind": "pcie"})", ""));
}

TEST_CASE("a machine with impossible nodes, domains or cards is refused") {
  UniformMachine machine = racks();
  machine.gpus_per_node = 65;
  CHECK(describe(machine).error().found == "65 GPUs per node");
  machine = racks();
  machine.nodes_per_domain = 2000;
  CHECK(describe(machine).error().found == "an NVLink domain of 8000 GPUs");
  machine = racks();
  machine.nic = BytesPerSecond{};
  CHECK_FALSE(describe(machine).ok());
}

TEST_CASE("no driver's name or alias is shared by two GPUs of the catalog") {
  for (const std::string& one : gpu_catalog()) {
    const GpuDescription gpu = load_gpu(one, "a test").value();
    for (const std::string& other : gpu_catalog()) {
      if (one == other) continue;
      const GpuDescription also = load_gpu(other, "a test").value();
      for (const std::string& name : gpu.driver_names) {
        INFO(one << " and " << other << ": " << name);
        CHECK(std::ranges::count(also.driver_names, name) == 0);
      }
    }
    CHECK_FALSE(gpu.spec.family.empty());
  }
}

}  // namespace
}  // namespace echelon
