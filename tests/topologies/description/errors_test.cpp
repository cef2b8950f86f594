#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/files.hpp"
#include "tests/topologies/support.hpp"
#include "topologies/description/description.hpp"

using namespace echelon;

namespace {

/// A valid description; each test breaks one part of it.
const std::string kGood = R"({
  "schema": 1,
  "name": "good",
  "gpu": {
    "name": "X100",
    "memory": {"value": 80, "unit": "GiB", "source": "sheet"},
    "hbm": {"value": 3, "unit": "TB/s", "source": "sheet"},
    "bf16": {"value": 900, "unit": "TFLOP/s", "source": "sheet"},
    "sms": {"value": 100, "source": "sheet"}
  },
  "node": {
    "gpus": {"value": 4, "source": "counted"},
    "interconnect": {
      "kind": "nvlink-mesh",
      "link": {"value": 25, "unit": "GB/s", "source": "sheet"},
      "links": [[0, 1, 1], [1, 2, 1], [2, 3, 2]]
    },
    "pcie": {
      "gpu_link": {"value": 63, "unit": "GB/s", "source": "PCIe 5"},
      "switches": [[0, 1], [2, 3]],
      "sockets": {"value": 2, "source": "counted"},
      "socket_link": {"value": 20, "unit": "GB/s", "source": "sheet"}
    },
    "nics": {
      "count": {"value": 2, "source": "counted"},
      "rate": {"value": 400, "unit": "Gbps", "source": "sheet"},
      "next_to": [[0, 1], [2, 3]]
    }
  },
  "fabric": {
    "tiers": [
      {"name": "leaf", "multiplicity": {"value": 4, "source": "counted"},
       "latency": {"value": 1, "unit": "us", "source": "assumed"}}
    ]
  },
  "max_gpus": {"value": 16, "source": "counted"}
})";

std::string broken(std::string_view what, std::string_view with) {
  std::string text = kGood;
  const std::size_t at = text.find(what);
  if (at == std::string::npos) FAIL("the valid description has no " << what);
  return text.replace(at, what.size(), with);
}

std::string message(const std::string& json, std::int64_t gpus = 0) {
  const Result<ClusterTopology> cluster = ClusterTopology::parse(json, "my.json", gpus);
  return cluster ? "no error" : cluster.error().message();
}

}  // namespace

TEST_CASE("the former key of the places of NICs is read") {
  const std::string former = broken("next_to", "beside");
  const Result<MachineDescription> machine = parse_machine(former, "m");
  REQUIRE(machine.ok());
  CHECK(canonical_json(*machine) == canonical_json(*parse_machine(kGood, "m")));
  const std::string both = broken(R"("next_to": )", R"("beside": "gpus", "next_to": )");
  check_contains(message(both), {"unknown key 'beside'"});
}

TEST_CASE("the description used by the other tests is valid") {
  CHECK(message(kGood) == "no error");
}

TEST_CASE("the error for a wrong value has its pointer and the expected value") {
  struct Case {
    std::string what, with;
    std::vector<std::string> expected;
  };
  for (const Case& one : std::vector<Case>{
           {R"("schema": 1)", R"("schema": 2)", {"/schema", "version 2", "version 1", "newer"}},
           {R"("schema": 1,)", "", {"schema", "missing"}},
           {R"("rate")", R"("rats")", {"/node/nics/rate", "missing", "'rats'", "did you mean"}},
           {R"("max_gpus")", R"("max_gpu")", {"unknown key 'max_gpu'", "did you mean 'max_gpus'?"}},
           {R"("unit": "GiB")",
            R"("unit": "GB/s")",
            {"/gpu/memory", "'GB/s'", "an amount of memory", "is a bandwidth"}},
           {R"("unit": "GiB")", R"("unit": "Gib")", {"'Gib'", "GiB", "did you mean"}},
           {R"("unit": "Gbps")", R"("unit": "Gb")", {"/node/nics/rate", "Gbps"}},
           // Bits stay bits, and bytes bytes: the nearest name is eight times off.
           {R"("unit": "Gbps")", R"("unit": "Gb/s")", {"'Gb/s'", "did you mean 'Gbps'?"}},
           {R"("unit": "Gbps")", R"("unit": "Gbit/s")", {"did you mean 'Gbps'?"}},
           {R"("unit": "Gbps")", R"("unit": "Tb/s")", {"did you mean 'Tbps'?"}},
           {R"("unit": "Gbps")", R"("unit": "GBps")", {"did you mean 'GB/s'?"}},
           {R"("nics": {)",
            R"("nics": {"kind": "infinband",)",
            {"/node/nics/kind", "infinband", "did you mean 'infiniband'?"}},
           {R"("nics": {)",
            R"("nics": {"kind": 4,)",
            {"/node/nics/kind", "infiniband", "slingshot", "ethernet"}},
           {R"("value": 80, "unit": "GiB")",
            R"("value": 80)",
            {"/gpu/memory", "80 without a unit", "GiB"}},
           {R"("value": 80)", R"("value": -80)", {"/gpu/memory", "-80 GiB", "between"}},
           {R"("value": 3,)", R"("value": 0,)", {"/gpu/hbm", "0 TB/s", "between"}},
           {R"("value": 80)", R"("value": 8e20)", {"/gpu/memory", "between"}},
           {R"("value": 80)", R"("value": "many")", {"/gpu/memory/value", "many", "a number"}},
           {R"("gpus": {"value": 4)",
            R"("gpus": {"value": 4.5)",
            {"/node/gpus", "4.5", "a whole number"}},
           {R"("gpus": {"value": 4)",
            R"("gpus": {"value": 100000)",
            {"/node/gpus", "between 1 and 64"}},
           {R"([2, 3, 2]])",
            R"([2, 7, 2]])",
            {"/node/interconnect/links/2", "7", "a GPU index from 0 to 3"}},
           {R"([2, 3, 2]])", R"([2, 2, 2]])", {"/node/interconnect/links/2", "[gpu, gpu, count]"}},
           {R"([2, 3, 2]])", R"([2, 3, 0]])", {"links", "between 1 and 64"}},
           {R"(, [2, 3, 2]])", R"(])", {"no NVLink path from GPU 0 to GPU 3", "connect every GPU"}},
           {R"("next_to": [[0, 1], [2, 3]])",
            R"("next_to": [[0, 1], []])",
            {"/node/nics/next_to/1", "a NIC without GPUs"}},
           {R"("next_to": [[0, 1], [2, 3]])",
            R"("next_to": [[0, 1], [2, 4]])",
            {"/node/nics/next_to/1", "4", "a GPU index from 0 to 3"}},
           {R"("next_to": [[0, 1], [2, 3]])",
            R"("next_to": [[0, 2], [3]])",
            {"different sockets", "GPUs of one socket", R"("next_to": "sockets")"}},
           {R"("next_to": [[0, 1], [2, 3]])",
            R"("next_to": [[0, 1]])",
            {"/node/nics/next_to", "1 entries", "each of the 2 NICs"}},
           {R"("count": {"value": 2)", R"("count": {"value": 3)", {"/node/nics/next_to"}},
           {R"("switches": [[0, 1], [2, 3]])",
            R"("switches": [[0, 1], [1, 3]])",
            {"/node/pcie/switches/1"}},
           {R"("switches": [[0, 1], [2, 3]])", R"("switches": [[0, 2]])", {"different sockets"}},
           {R"("kind": "nvlink-mesh")",
            R"("kind": "nvlink-mash")",
            {"/node/interconnect/kind", "did you mean 'nvlink-mesh'?"}},
           {R"("gpu": {)",
            R"("gpu": "h1000", "x": {)",
            {"unknown GPU 'h1000'", "did you mean", "known:"}},
           {R"("name": "leaf",)",
            R"("name": "leaf", "kind": "nvlink",)",
            {"/fabric/tiers/0/kind", "nvlink-mesh"}},
           {R"("tiers": [)", R"("tiers": [], "x": [)", {"/fabric/tiers", "no tiers"}},
       }) {
    INFO(one.what << " -> " << one.with);
    const std::string found = message(broken(one.what, one.with));
    for (const std::string& part : one.expected) check_contains(found, {part});
    check_contains(found, {"my.json"});
  }
}

TEST_CASE("text that is not a description is refused") {
  for (const std::string text :
       {"", "{", "[]", "null", "{\"schema\": 1", "{\"schema\": 1, \"schema\": 1}", "\xff\xfe",
        R"({"schema": 1, "name": "x", "gpu": [], "node": []})",
        R"({"schema": 1, "name": "x", "gpu": "h100", "node": 7})",
        R"({"schema": 1, "name": "x", "gpu": "h100"})"}) {
    CHECK(message(text) != "no error");
  }
}

TEST_CASE("every truncation of a valid description is an error, never a crash") {
  for (std::size_t length = 0; length + 1 < kGood.size(); length += 7) {
    CHECK(message(kGood.substr(0, length)) != "no error");
  }
}

TEST_CASE("the error for a wrong size names both nearest sizes") {
  const std::string found = ClusterTopology::load("dgx-h100", 100).error().message();
  check_contains(found, {"--gpus"});
  check_contains(found, {"100"});
  check_contains(found, {"at most 8 or a multiple of 8"});
  check_contains(found, {"96 or 104"});
}

TEST_CASE("more GPUs than the machine has is an error with their number") {
  check_contains(message(kGood, 20), {"at most 16"});
  CHECK(message(kGood, 16) == "no error");
  check_contains(ClusterTopology::load("selene", 8192).error().message(), {"4480"});
}

TEST_CASE("a machine without network cards is one node") {
  const auto two = ClusterTopology::load(machine_path("minimal"), 4);
  REQUIRE_FALSE(two.ok());
  check_contains(two.error().message(), {"no network cards"});
}

TEST_CASE("the error for an unknown cluster suggests the nearest name, and where to find all") {
  const std::string found = ClusterTopology::load("dgx-h1000", 8).error().message();
  check_contains(found, {"unknown cluster 'dgx-h1000'"});
  check_contains(found, {"did you mean 'dgx-h100'?", "plan topo list lists all"});
  CHECK(found.find("gb200-nvl72") == std::string::npos);
  check_contains(ClusterTopology::load("perlmuter", 8).error().message(), {"'perlmutter'?"});
  const std::string other = ClusterTopology::load("summit", 8).error().message();
  check_contains(other, {"plan topo list lists all", "docs/topology-format.md"});
  CHECK(other.find("did you mean") == std::string::npos);
}

TEST_CASE("an accelerator that is no GPU is refused as such") {
  for (const char* name : {"tpu-v5p", "TPU v6e", "v5litepod-256", "gaudi3", "trn2.48xlarge"}) {
    CAPTURE(name);
    const std::string found = ClusterTopology::load(name, 8).error().message();
    check_contains(found, {name, "expected GPUs of NVIDIA or AMD", "plan topo list"});
    CHECK(found.find("did you mean") == std::string::npos);
  }
}

TEST_CASE("the name of a GPU in place of a cluster is answered with the clusters that have it") {
  const std::string found = ClusterTopology::load("h200", 8).error().message();
  check_contains(found, {"'h200', a GPU; expected a cluster"});
  check_contains(found, {"with it: aws-p5e, aws-p5en, azure-ndh200v5, dgx-h200, gcp-a3-ultra, "});
  const std::string none = ClusterTopology::load("A30", 8).error().message();
  check_contains(none, {"'A30', a GPU"});
  check_contains(none, {"the catalog has none with it", "\"gpu\": \"a30\"", "plan topo show",
                        "docs/topology-format.md"});
}

TEST_CASE("a number of GPUs in place of a cluster is answered with clusters of that GPU") {
  for (const char* name : {"4x4090", "4090x4", "4 x RTX 4090", "gpu_4x_rtx4090"}) {
    CAPTURE(name);
    check_contains(ClusterTopology::load(name, 0).error().message(),
                   {"GPUs rtx-4090; expected a cluster", "with it: rtx-4090; --gpus 4"});
  }
  check_contains(ClusterTopology::load("16xh100-sxm", 0).error().message(),
                 {"with it: aws-p5", "dgx-h100, ", "--gpus 16"});
  check_contains(ClusterTopology::load("4xlaptop", 0).error().message(), {"unknown cluster"});
}

TEST_CASE("the name of a GPU is also answered with the clusters that have a variant of it") {
  check_contains(ClusterTopology::load("gh200-96", 8).error().message(),
                 {"'gh200-96', a GPU", "with it: alps, gh200, isambard-ai, jupiter"});
  check_contains(ClusterTopology::load("MI250X", 8).error().message(), {"with it: frontier, lumi"});
  const std::string a100 = ClusterTopology::load("a100", 8).error().message();
  CHECK(a100.find("a10,") == std::string::npos);
  CHECK(a100.find("leonardo") == std::string::npos);  // another GPU, A100-SXM4-64GB
}

TEST_CASE("oversubscription is that of links to a tier above, which the outermost does not have") {
  const std::string outermost =
      message(broken(R"("latency": {"value": 1, "unit")",
                     R"("oversubscription": 2, "latency": {"value": 1, "unit")"));
  check_contains(outermost, {"my.json at /fabric/tiers/0/oversubscription",
                             "2 at the outermost tier", "stands at the leaf"});
  CHECK(message(broken(R"({"name": "leaf", "multiplicity": {"value": 4)",
                       R"({"name": "leaf", "multiplicity": 1, "oversubscription": 2, )"
                       R"("latency": "1 us"}, {"name": "spine", "multiplicity": {"value": 4)")) ==
        "no error");
}

TEST_CASE("an unreadable description is an environment error") {
  const auto missing = ClusterTopology::load("/nowhere/at/all.json", 8);
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.error().kind == Error::Kind::environment);
}

TEST_CASE("the largest allowed rates give finite results") {
  std::string text = kGood;
  for (const auto& [what, with] : std::vector<std::pair<std::string, std::string>>{
           {R"("value": 25, "unit": "GB/s")", R"("value": 10, "unit": "TB/s")"},
           {R"("value": 63, "unit": "GB/s")", R"("value": 10, "unit": "TB/s")"},
           {R"("value": 20, "unit": "GB/s")", R"("value": 10, "unit": "TB/s")"},
           {R"("value": 400, "unit": "Gbps")", R"("value": 80, "unit": "Tbps")"},
           {R"("max_gpus": {"value": 16)", R"("max_gpus": {"value": 100000000)"}}) {
    text.replace(text.find(what), what.size(), with);
  }
  const Result<ClusterTopology> cluster = ClusterTopology::parse(text, "my.json", 100'000'000);
  if (!cluster) FAIL(cluster.error().message());
  CHECK(gbps(cluster->group({2, 1}).intra) == Approx(10'000));
  CHECK(gbps(cluster->group({8, 1}).inter) == Approx(20'000));
  CHECK(gbps(cluster->graph().cluster_bisection()) == Approx(20'000 * 12.5e6));
}
