// Plan files with anything in them: written, read, damaged.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/plan_file.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/numbers.hpp"

using namespace echelon;
using Json = nlohmann::ordered_json;

namespace {

/// Over many magnitudes.
double any_number(Numbers& draw) {
  const double number = draw.unit();
  return number * (draw.upto(3) == 0 ? 1e12 : 1);
}

PlanFile any_plan_file(Numbers& draw) {
  PlanFile f;
  f.version = "0." + std::to_string(draw.upto(99));
  f.model.name = draw.coin() ? "tiny" : "name \"with\" \\ and é";
  f.model.architecture = "llama";
  f.model.source = "a test";
  f.model.heads = f.model.kv_heads = 1 << draw.upto(4);
  f.model.head_dim = 32;
  f.model.hidden = 32 * f.model.heads;
  f.model.layers = 1 + draw.upto(40);
  f.model.ffn_hidden = 100 + draw.upto(1000);
  f.model.vocab = 100 + draw.upto(100'000);
  f.model.max_positions = draw.upto(8192);
  f.model.tied_embeddings = draw.coin();
  f.job.sequence = 1 + draw.upto(8192);
  f.job.global_batch = 1 + draw.upto(1'000'000);
  f.job.precision = *find_precision(draw.coin() ? "bf16" : "fp8");
  f.job.flash_attention = draw.coin();
  if (draw.coin()) f.job.token_budget = 1 + any_number(draw);
  f.cluster = draw.coin() ? "dgx-h100" : "/a path/with spaces.json";
  f.gpus = 1 + draw.upto(100'000);
  f.stack = "megatron-core";
  f.calibration = "hopper";
  if (draw.coin()) f.calibration_path = "mine.json";
  f.keep_free = Bytes{double(draw.upto(1 << 30))};
  if (draw.coin()) f.max_memory = Bytes{1.0 + draw.upto(1 << 30)};
  for (int i = draw.upto(5); i > 0; --i) f.assumptions.push_back("number " + std::to_string(i));
  f.cluster_hash = std::string(31, '0') + static_cast<char>('a' + draw.upto(5));
  f.calibration_hash = std::string(32, static_cast<char>('0' + draw.upto(9)));
  f.plan.tp = 1 << draw.upto(3);
  f.plan.cp = 1 << draw.upto(2);
  f.plan.cp_comm = draw.coin() ? CpComm::ring : CpComm::all_to_all;
  f.plan.dp = 1 + draw.upto(64);
  f.plan.pp = 1 + draw.upto(15);
  f.plan.vpp = 1 + draw.upto(3);
  f.plan.microbatch = 1 + draw.upto(7);
  f.plan.zero = draw.upto(3);
  f.plan.shard_group = 1 + draw.upto(64);
  f.plan.sequence_parallel = draw.coin();
  f.plan.recompute = static_cast<Recompute>(draw.upto(2));
  f.plan.schedule = static_cast<ScheduleKind>(draw.upto(3));
  f.plan.rank_order = draw.coin() ? RankOrder::dp_inside_pp : RankOrder::pp_inside_dp;
  if (draw.coin()) f.plan.offload_optimizer = 0.25;
  f.plan.overlap_dp = draw.coin();
  f.plan.overlap_tp = draw.coin();
  f.plan.overlap_pp = draw.coin();
  for (int i = 0; i < f.plan.pp; ++i) {
    f.plan.layers_per_stage.push_back(1 + draw.upto(9));
    f.plan.recompute_layers.push_back(f.plan.recompute == Recompute::full ? draw.upto(3) : 0);
    MemoryBreakdown stage;
    stage.weights = Bytes{double(draw.upto(1 << 30))};
    stage.activations = Bytes{double(draw.upto(1 << 30))};
    f.predicted.stages.push_back(stage);
  }
  f.predicted.evidence = static_cast<Evidence>(draw.upto(2));
  f.predicted.fits = draw.coin();
  f.predicted.capacity = 80_GiB;
  f.predicted.peak = Bytes{double(draw.upto(1 << 30))};
  f.predicted.time.compute = Seconds{any_number(draw)};
  f.predicted.time.bubble = Seconds{any_number(draw) / 3};
  f.predicted.low = Seconds{any_number(draw)};
  f.predicted.high = Seconds{any_number(draw)};
  f.predicted.tokens_per_second = any_number(draw);
  f.predicted.model_flops_per_gpu = FlopsPerSecond{any_number(draw) * 1e12};
  f.predicted.mfu = any_number(draw) / 1e12;
  f.program = "echelon-schedule 1\npipeline " + std::string(name_of(f.plan.schedule)) + " ranks " +
              std::to_string(f.plan.pp) + " chunks " + std::to_string(f.plan.vpp) +
              " microbatches " +
              std::to_string(f.plan.microbatches_rounded_up(f.job.global_batch)) + " units 1\n";
  for (int i = draw.upto(3) == 0 ? 8000 : draw.upto(20); i > 0; --i) {
    f.program += std::to_string(draw.upto(1 << 20)) + " F c0 m1\n";
  }
  return f;
}

/// Pointers of all values that are not objects or lists.
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

/// Another value of the same type where there is one.
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

TEST_CASE("any plan file reads back as it was written") {
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

TEST_CASE("a change of any value is noticed") {
  Numbers draw(11);
  for (int i = 0; i < 4; ++i) {
    const Json root = Json::parse(plan_file_to_json(any_plan_file(draw)));
    REQUIRE(parse_plan_file(root.dump(), "p.json").ok());  // spacing is nobody's business
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

TEST_CASE("a key taken out or put in is noticed") {
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

TEST_CASE("a file that ends early is refused wherever it ends") {
  Numbers draw(17);
  const std::string text = plan_file_to_json(any_plan_file(draw));
  for (std::size_t length = 0; length + 2 < text.size(); length += 61) {
    CHECK_FALSE(parse_plan_file(std::string_view(text).substr(0, length), "p.json").ok());
  }
}
