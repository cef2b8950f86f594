#include "topologies/describe.hpp"

#include <algorithm>
#include <string>

#include "tests/topologies/support.hpp"

using namespace echelon;

TEST_CASE("the list has one entry per cluster and per GPU of the catalog") {
  const std::vector<ClusterSummary> clusters = list_clusters();
  CHECK(clusters.size() == cluster_catalog().size());
  const auto rack = std::find_if(clusters.begin(), clusters.end(), [](const ClusterSummary& one) {
    return one.name == "gb200-nvl72";
  });
  REQUIRE(rack != clusters.end());
  CHECK(rack->gpus_per_node == 4);
  CHECK(rack->domain_gpus == 72);
  CHECK(rack->nics == 4);
  CHECK(rack->fabric.front() == "nvlink-rack");
  CHECK(list_gpus().size() == 24);
}

TEST_CASE("the numbers of a description are listed in the order of the file") {
  const Result<ClusterDetails> details = describe_cluster("aws-p4d");
  REQUIRE(details.ok());
  const auto at = [&](const std::string& name) {
    return std::find_if(details->facts.begin(), details->facts.end(),
                        [&](const Fact& fact) { return fact.name == name; });
  };
  REQUIRE(at("gpu.hbm") != details->facts.end());
  CHECK(at("gpu.hbm")->value == "1.555");
  CHECK(at("gpu.hbm")->unit == "TB/s");
  REQUIRE(at("node.nics.rate") != details->facts.end());
  CHECK(at("node.nics.rate")->value == "100");
  check_contains(at("node.nics.rate")->source, {"p4d-24xl-topo.xml"});
  CHECK(at("gpu.hbm") < at("node.nics.rate"));
  CHECK(at("gpu.launch")->assumed);
  CHECK_FALSE(at("gpu.hbm")->assumed);
  CHECK(gbps(details->rates.domain_egress) == Approx(50));
  CHECK(gbps(details->rates.gpu_egress) == Approx(6.25));
  CHECK(gbps(details->rates.ring) == Approx(300));
}

TEST_CASE("a good description is verified without a warning") {
  for (const std::string name : {"dgx-h100", "dgx-a100", "aws-p5", "gb200-nvl72"}) {
    INFO(name);
    const Result<CheckReport> report = check_cluster(name);
    REQUIRE(report.ok());
    CHECK(report->verified.size() == 4);
    for (const std::string& warning : report->warnings) FAIL_CHECK(warning);
  }
}

TEST_CASE("a check warns of values that are valid but probably unintended") {
  const Result<CheckReport> odd = check_cluster(machine_path("odd"));
  REQUIRE(odd.ok());
  std::string all;
  for (const std::string& warning : odd->warnings) all += warning + "\n";
  check_contains(all, {"faster than its PCIe slot"});
  check_contains(all, {"PCIe limits a domain's egress to 52 of its NICs' 75 GB/s"});
  check_contains(all, {"unevenly"});

  const Result<CheckReport> minimal = check_cluster(machine_path("minimal"));
  REQUIRE(minimal.ok());
  all.clear();
  for (const std::string& warning : minimal->warnings) all += warning + "\n";
  check_contains(all, {"have no source"});
  check_contains(all, {"no network cards"});

  const Result<CheckReport> mesh = check_cluster(machine_path("full-mesh"));
  REQUIRE(mesh.ok());
  REQUIRE(mesh->warnings.size() == 1);
  check_contains(mesh->warnings.front(), {"'spine' is oversubscribed 2 to 1"});
}

TEST_CASE("a check of a broken description returns its error") {
  CHECK_FALSE(check_cluster("/nowhere.json").ok());
}
