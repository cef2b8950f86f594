// plan topo check: what it verifies, and values that are valid but probably unintended.
#include <string>
#include <vector>

#include "tests/cli/program.hpp"

namespace echelon::test {
namespace {

const std::string kSources = ECHELON_SOURCE_DIR;

std::string description(const std::string& name) {
  return shell_word(kSources + "/tests/topologies/machines/" + name + ".json");
}

TEST_CASE("a good description is verified without a warning") {
  const Sandbox sandbox;
  for (const std::string name : {"dgx-h100", "dgx-a100", "aws-p5", "gb200-nvl72"}) {
    CAPTURE(name);
    const std::string file =
        shell_word(kSources + "/topologies/catalog/clusters/" + name + ".json");
    const auto check = document(sandbox.plan("topo check --json " + file));
    CHECK(check["name"] == name);
    CHECK(check["verified"].size() == 3);
    CHECK(check["warnings"].empty());
    const ProcessResult shown = sandbox.plan("topo check " + file);
    CHECK(shown.exit_code == 0);
    CHECK(lacks(shown.out, "is a valid description.") == "");
    CHECK(lacks(shown.out, "every GPU reaches a NIC") == "");
    CHECK(shown.out.find("warning") == std::string::npos);
  }
}

TEST_CASE("a check gives the rates of the slowest GPU and of a ring") {
  const Sandbox sandbox;
  const auto check = document(sandbox.plan(
      "topo check --json " + shell_word(kSources + "/topologies/catalog/clusters/aws-p4d.json")));
  REQUIRE(check["verified"].size() == 3);
  CHECK(check["verified"][1] == "8 GPUs of a domain connected, 300 GB/s per rank around a ring");
  CHECK(check["verified"][2] == "every GPU reaches a NIC, 6.25 GB/s each when all send");
}

TEST_CASE("a check warns of values that are valid but probably unintended") {
  const Sandbox sandbox;
  struct Case {
    std::string name;
    std::vector<std::string> warnings;
  };
  for (const Case& each :
       std::vector<Case>{{"odd",
                          {"faster than its PCIe slot",
                           "PCIe limits a domain's egress to 52 of its NICs' 75 GB/s", "unevenly"}},
                         {"minimal",
                          {"have no source", "no network cards",
                           "no cpu_memory of a node: no plan offloads the optimizer to it"}},
                         {"full-mesh", {"'leaf' is oversubscribed 2 to 1"}}}) {
    CAPTURE(each.name);
    const std::string brief = sandbox.plan("topo check --quiet " + description(each.name)).out;
    const auto check = document(sandbox.plan("topo check --json " + description(each.name)));
    std::string all;
    for (const auto& warning : check["warnings"]) all += warning.get<std::string>() + "\n";
    CHECK(lacks(brief, std::to_string(check["warnings"].size()) + " warning") == "");
    for (const std::string& warning : each.warnings) {
      CHECK(lacks(all, warning) == "");
      CHECK(lacks(brief, warning) == "");
    }
  }
  CHECK(
      document(sandbox.plan("topo check --json " + description("full-mesh")))["warnings"].size() ==
      2);
  CHECK(lacks(sandbox.plan("topo check " + description("odd")).out, "unevenly") == "");
}

}  // namespace
}  // namespace echelon::test
