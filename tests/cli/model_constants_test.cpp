// Epsilon, rotary base and scaling of a model: from its config.json through plan, run, checkpoint
// and export; plan run refuses unsupported arithmetic from scratch and on import.
#include <cmath>

#include "core/run/run_report.hpp"
#include "tests/cli/program.hpp"
#include "tests/support/temp_dir.hpp"

using namespace echelon;
using echelon::test::lacks;
using echelon::test::Sandbox;

namespace {

using Json = nlohmann::ordered_json;

Json llama_config() {
  return {{"model_type", "llama"},
          {"num_hidden_layers", 2},
          {"hidden_size", 16},
          {"intermediate_size", 24},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"head_dim", 4},
          {"max_position_embeddings", 64},
          {"vocab_size", 256},
          {"rms_norm_eps", 1e-3},
          {"rope_theta", 500.0}};
}

Json llama3_scaling() {
  return {{"rope_type", "llama3"},
          {"factor", 8.0},
          {"low_freq_factor", 1.0},
          {"high_freq_factor", 4.0},
          {"original_max_position_embeddings", 64}};
}

/// Plans `config` as NAME.json and returns the output.
std::string planned(const Sandbox& sandbox, const Json& config, const std::string& name) {
  sandbox.write(name + "-config.json", config.dump());
  const ProcessResult made =
      sandbox.plan("--model " + name +
                   "-config.json --cluster this-machine --gpus 1 --seq 16 --global-batch 2 "
                   "--microbatch 1 --precision fp64 -o " +
                   name + ".json");
  INFO(made.err);
  REQUIRE(made.exit_code == 0);
  return made.out;
}

/// The loss of the first step; later steps do not matter here.
double first_loss(const Sandbox& sandbox, const std::string& arguments) {
  const ProcessResult ran =
      sandbox.plan("run " + arguments + " --steps 1 --quiet --report report.json");
  INFO(ran.err << ran.out);
  REQUIRE(ran.exit_code == 0);
  return read_run_report(sandbox.file("report.json"))->steps.front().loss;
}

std::string refusal(const Sandbox& sandbox, const std::string& arguments) {
  const ProcessResult ran = sandbox.plan("run " + arguments + " --steps 1 --quiet");
  CHECK(ran.exit_code == 2);
  return ran.err;
}

}  // namespace

TEST_CASE("a config's epsilon, base and scaling are used in runs, exports and resumed runs") {
  const Sandbox sandbox;
  Json scaled = llama_config();
  scaled["rope_scaling"] = llama3_scaling();
  Json plain = llama_config();
  plain["rms_norm_eps"] = 1e-5;
  plain["rope_theta"] = 10'000.0;
  CHECK(planned(sandbox, scaled, "scaled").find("plan run refuses") == std::string::npos);
  planned(sandbox, plain, "plain");
  const double loss = first_loss(sandbox, "scaled.json --export out --checkpoint-dir steps");
  CHECK(std::abs(loss - first_loss(sandbox, "plain.json")) > 1e-9);  // they were equal

  const Json out = Json::parse(slurp(sandbox.file("out/config.json")));
  CHECK(out["rms_norm_eps"] == 1e-3);
  CHECK(out["rope_theta"] == 500.0);
  CHECK(out["rope_scaling"] == llama3_scaling());
  (void)first_loss(sandbox, "scaled.json --init-from out");
  CHECK(lacks(refusal(sandbox, "plain.json --init-from out"),
              "norm_epsilon is 0.001, the plan's is 1e-05") == "");

  (void)first_loss(sandbox, "scaled.json --resume --checkpoint-dir steps");
  CHECK(lacks(refusal(sandbox, "plain.json --resume --checkpoint-dir steps"),
              "another model: norm_epsilon is 0.001") == "");
}

TEST_CASE(
    "unsupported arithmetic is reported by the planner and refused from scratch and on import") {
  const Sandbox sandbox;
  Json plain = llama_config();
  planned(sandbox, plain, "plain");
  (void)first_loss(sandbox, "plain.json --export out");
  const auto both = [&](const Json& config, const std::string& why) {
    CHECK(lacks(planned(sandbox, config, "other"), "plan run refuses this plan") == "");
    CHECK(lacks(refusal(sandbox, "other.json"), why) == "");
    sandbox.write("out/config.json", config.dump());
    CHECK(lacks(refusal(sandbox, "plain.json --init-from out"), why) == "");
  };
  Json config = llama_config();
  config["rope_scaling"] = {{"type", "dynamic"}, {"factor", 2.0}};
  both(config, "'dynamic' scaling of the rotary embedding; expected a GPT-2-like or Llama-like");
  config["rope_scaling"] = {
      {"type", "longrope"}, {"long_factor", {1, 2}}, {"short_factor", {1, 1}}};
  both(config, "'longrope' scaling of the rotary embedding; expected a GPT-2-like or Llama-like");
  config = llama_config();
  config["partial_rotary_factor"] = 0.75;
  both(config, "a rotary embedding of 3 of the 4 numbers of a head; expected a GPT-2-like or");
  config = llama_config();
  config["embedding_multiplier"] = 12.0;
  both(config, "unknown config.json key 'embedding_multiplier'; expected");
}

TEST_CASE("a plan of the version without constants is priced but not run") {
  const Sandbox sandbox;
  Json model{{"schema", 1},      {"layers", 2},  {"hidden", 16},        {"heads", 4},
             {"ffn_hidden", 24}, {"vocab", 256}, {"max_positions", 64}, {"name", "old"}};
  sandbox.write("old-model.json", model.dump());
  const ProcessResult made = sandbox.plan(
      "--model old-model.json --cluster this-machine --gpus 1 --seq 16 --global-batch 2 -o "
      "old.json");
  REQUIRE(made.exit_code == 0);
  CHECK(lacks(made.out, "plan run refuses this plan") == "");
  const std::string told = refusal(sandbox, "old.json");
  CHECK(lacks(told, "norm_epsilon") == "");
  CHECK(lacks(told, "plan predict FILE --model NAME -o NEW") == "");
  model["schema"] = 2;
  model["norm_epsilon"] = 1e-5;
  model["rope"] = {{"theta", 10'000.0}};
  sandbox.write("new-model.json", model.dump());
  REQUIRE(sandbox.plan("predict old.json --model new-model.json -o new.json -q").exit_code == 0);
  (void)first_loss(sandbox, "new.json");
}
