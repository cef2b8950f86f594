// The canonical form of a description, which plan files hash.
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/places.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"
#include "topologies/description/description.hpp"
#include "topologies/topology.hpp"

using namespace echelon;
using Json = nlohmann::ordered_json;

namespace {

/// JSON pointers of all numbers.
void numbers_in(const Json& json, const Json::json_pointer& at,
                std::vector<Json::json_pointer>& all) {
  if (json.is_number()) all.push_back(at);
  if (!json.is_structured()) return;
  if (json.is_array()) {
    for (std::size_t i = 0; i < json.size(); ++i) numbers_in(json[i], at / i, all);
  } else {
    for (const auto& [key, value] : json.items()) numbers_in(value, at / key, all);
  }
}

}  // namespace

TEST_CASE("all machines of the catalog have different canonical forms") {
  std::set<std::string> all;
  for (const std::string& name : cluster_catalog()) all.insert(canonical_json(*load_machine(name)));
  CHECK(all.size() == cluster_catalog().size());
}

TEST_CASE("the kind of the NICs is read, and a part of the canonical form where it is given") {
  const std::filesystem::path file = "tests/topologies/machines/full-mesh.json";
  Json json = Json::parse(slurp(std::filesystem::path(ECHELON_SOURCE_DIR) / file));
  REQUIRE_FALSE(json["node"]["nics"].contains("kind"));
  const Result<MachineDescription> without = parse_machine(json.dump(), "m");
  REQUIRE(without.ok());
  CHECK_FALSE(without->node.nic_kind);
  CHECK(without->node.has_mlx5());
  std::set<std::string> all = {canonical_json(*without)};
  CHECK(all.begin()->find("nic_kind") == std::string::npos);
  for (const NicKind kind : kNicKinds) {
    json["node"]["nics"]["kind"] = name_of(kind);
    const Result<MachineDescription> machine = parse_machine(json.dump(), "m");
    REQUIRE(machine.ok());
    CHECK(machine->node.nic_kind == kind);
    CHECK(machine->node.has_mlx5() == (kind == NicKind::infiniband || kind == NicKind::roce));
    CHECK(all.insert(canonical_json(*machine)).second);
  }
}

TEST_CASE("every number of a description changes its canonical form, words and layout do not") {
  int changed = 0;
  for (const char* file :
       {"topologies/catalog/clusters/dgx-h100.json", "topologies/catalog/clusters/gb200-nvl72.json",
        "topologies/catalog/clusters/dgx-v100.json", "topologies/catalog/clusters/rtx-4090.json",
        "tests/topologies/machines/full-mesh.json", "tests/topologies/machines/odd.json"}) {
    CAPTURE(file);
    const std::string text = slurp(std::filesystem::path(ECHELON_SOURCE_DIR) / file);
    Json json = Json::parse(text);
    const Result<MachineDescription> machine = parse_machine(text, "m");
    REQUIRE(machine.ok());
    json["description"] = "Other words.";
    CHECK(canonical_json(*parse_machine(json.dump(), "m")) == canonical_json(*machine));
    std::vector<Json::json_pointer> numbers;
    numbers_in(json, Json::json_pointer(), numbers);
    for (const Json::json_pointer& at : numbers) {
      if (at.to_string() == "/schema") continue;
      Json other = json;
      // At least one of the two is a valid description.
      for (const double by : {2.0, 0.5}) {
        const double value = json[at].get<double>() * by;
        other[at] = value == static_cast<std::int64_t>(value)
                        ? Json(static_cast<std::int64_t>(value))
                        : Json(value);
        const Result<MachineDescription> read = parse_machine(other.dump(), "m");
        if (!read || other[at] == json[at]) continue;
        CAPTURE(at.to_string());
        CHECK(canonical_json(*read) != canonical_json(*machine));
        ++changed;
      }
    }
  }
  CHECK(changed > 100);
}
