// Random plan files: written, read, damaged.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/plan/plan_file.hpp"
#include "tests/core/plan/any_plan_file.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/numbers.hpp"

using namespace echelon;
using Json = nlohmann::ordered_json;

namespace {

/// JSON pointers of all values that are not objects or lists.
void leaves_of(const Json& json, const Json::json_pointer& at,
               std::vector<Json::json_pointer>& all) {
  if (!json.is_structured() || json.empty()) {
    all.push_back(at);
    return;
  }
  if (json.is_array()) {
    for (std::size_t i = 0; i < json.size(); ++i) leaves_of(json[i], at / i, all);
  } else {
    for (const auto& [key, value] : json.items()) leaves_of(value, at / key, all);
  }
}

/// A different value, of the same type if possible.
Json tampered(const Json& value) {
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_number_integer()) return value.get<std::int64_t>() + 1;
  if (value.is_number()) return value.get<double>() * 1.0000001 + 1e-12;
  if (value.is_null()) return 1;
  if (value.is_array()) return Json::array({"dp"});
  if (value.is_object()) return Json{{"optimizer", 0.5}};
  std::string text = value.get<std::string>();
  if (text.empty()) return "x";
  char& last = text[text.size() / 2];
  last = last == '1' ? '2' : '1';
  return text;
}

}  // namespace

TEST_CASE("any plan file is unchanged after writing and reading") {
  Numbers draw(7);
  for (int i = 0; i < 150; ++i) {
    const PlanFile file = any_plan_file(draw);
    const std::string text = plan_file_to_json(file);
    const Result<PlanFile> back = parse_plan_file(text, "p.json");
    INFO((back ? text : back.error().message()));
    REQUIRE(back.ok());
    CHECK(back->model == file.model);
    CHECK(back->plan == file.plan);
    CHECK(back->predicted.time == file.predicted.time);
    CHECK(back->program == file.program);
    CHECK(back->assumptions == file.assumptions);
    CHECK(plan_file_to_json(*back) == text);
  }
}

TEST_CASE("a change of any value is detected") {
  Numbers draw(11);
  for (int i = 0; i < 4; ++i) {
    const Json root = Json::parse(plan_file_to_json(any_plan_file(draw)));
    REQUIRE(parse_plan_file(root.dump(), "p.json").ok());  // whitespace does not matter
    std::vector<Json::json_pointer> leaves;
    leaves_of(root, Json::json_pointer(), leaves);
    CHECK(leaves.size() > 100);
    for (const Json::json_pointer& leaf : leaves) {
      Json changed = root;
      changed[leaf] = tampered(root[leaf]);
      const Result<PlanFile> file = parse_plan_file(changed.dump(), "p.json");
      CAPTURE(leaf.to_string());
      CHECK_FALSE(file.ok());
      if (file) continue;
      CHECK_FALSE(file.error().found.empty());
      CHECK(file.error().where.starts_with("p.json"));
    }
  }
}

TEST_CASE("a removed or added key is detected") {
  Numbers draw(13);
  const Json root = Json::parse(plan_file_to_json(any_plan_file(draw)));
  std::vector<Json::json_pointer> leaves;
  leaves_of(root, Json::json_pointer(), leaves);
  for (const Json::json_pointer& leaf : leaves) {
    CAPTURE(leaf.to_string());
    Json changed = root;
    Json& parent = changed[leaf.parent_pointer()];
    if (!parent.is_object()) continue;
    parent["unheard of"] = 1;
    CHECK_FALSE(parse_plan_file(changed.dump(), "p.json").ok());
    parent.erase("unheard of");
    parent.erase(leaf.back());
    CHECK_FALSE(parse_plan_file(changed.dump(), "p.json").ok());
  }
}

TEST_CASE("a file truncated at any position is refused") {
  Numbers draw(17);
  const std::string text = plan_file_to_json(any_plan_file(draw));
  for (std::size_t length = 0; length + 2 < text.size(); length += 61) {
    CHECK_FALSE(parse_plan_file(std::string_view(text).substr(0, length), "p.json").ok());
  }
}
