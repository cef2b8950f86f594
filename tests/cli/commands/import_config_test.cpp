// plan import of configurations, and predict and explain that start from one.
#include <string>

#include "tests/cli/program.hpp"

namespace echelon::test {
namespace {

const std::string kConfigs = std::string(ECHELON_SOURCE_DIR) + "/tests/fuzz/corpus/";

std::string config_file(const std::string& name) { return shell_word(kConfigs + name); }
const std::string kScript = config_file("config_script/llama3-8b.sh");

/// The script with a text replaced, as train.sh.
void write_changed(const Sandbox& sandbox, const std::string& from, const std::string& to) {
  std::string text = slurp(kConfigs + "config_script/llama3-8b.sh");
  REQUIRE(text.find(from) != std::string::npos);
  text.replace(text.find(from), from.size(), to);
  sandbox.write("train.sh", text);
}

TEST_CASE("import of a configuration lists what it found, derived and assumed, and its price") {
  const Sandbox sandbox;
  const ProcessResult result = sandbox.plan("import " + kScript + " -o mine.json");
  CHECK(result.exit_code == 0);
  CHECK(result.err.empty());
  for (const char* words :
       {"Megatron-LM", "settings read", "Found", "--tensor-model-parallel-size", "line 11",
        "Derived", "GPUs / (tp x cp x pp)", "Assumed", "tokens/s", "The plan is in mine.json."}) {
    CHECK(lacks(result.out, words) == "");
  }
  const auto plan = nlohmann::ordered_json::parse(slurp(sandbox.file("mine.json")));
  CHECK(plan["plan"]["tp"] == 4);
  CHECK(sandbox.plan("predict mine.json --quiet").exit_code == 0);
  CHECK(sandbox.plan("import " + kScript + " --quiet").out.empty());
}

TEST_CASE("import of a configuration prints one JSON document with the keys of the contract") {
  const Sandbox sandbox;
  const auto config = document(sandbox.plan("import " + kScript + " --json"));
  check_keys(config, {"kind", "format", "framework", "version", "plan", "request", "found",
                      "derived", "assumed", "ask", "refused"});
  CHECK(config["kind"] == "config");
  CHECK(config["format"] == "megatron-lm");
  CHECK(config["framework"] == "megatron-core");
  CHECK(config["plan"]["dp"] == 8);
  CHECK(config["ask"].empty());
}

TEST_CASE("what a configuration leaves open is asked for by flag, and flags change the rest") {
  const Sandbox sandbox;
  write_changed(sandbox, "--nnodes 8", "--nnodes $NODES");
  write_changed(sandbox, "#SBATCH --nodes=8\n", "");
  std::string text = slurp(sandbox.file("train.sh"));
  text.replace(text.find("--nnodes 8"), 10, "--nnodes $NODES");
  sandbox.write("train.sh", text);
  const ProcessResult open = sandbox.plan("import train.sh");
  CHECK(open.exit_code == 2);
  CHECK(lacks(open.out, "Must be given") == "");
  CHECK(lacks(open.out, "--gpus: train.sh line 9: --nnodes has NODES") == "");
  const auto asked = nlohmann::ordered_json::parse(sandbox.plan("import train.sh --json").out);
  CHECK(asked["ask"].size() == 1);
  CHECK(asked["plan"].is_null());
  const std::string from = complaint(sandbox.plan("predict --from train.sh"), 2);
  CHECK(lacks(from, "--gpus") == "");
  const auto given = document(sandbox.plan("import train.sh --gpus 32 --tp 2 --json"));
  CHECK(given["plan"]["tp"] == 2);
  CHECK(given["plan"]["dp"] == 8);
}

TEST_CASE("every format of the corpus is imported by its name, or asks") {
  const Sandbox sandbox;
  struct Expected {
    const char* file;
    const char* format;
    const char* flags;
  };
  for (const Expected& each :
       {Expected{"config_script/gpt3-layout.sh", "megatron-lm", ""},
        Expected{"config_script/slurm.sh", "megatron-lm", ""},
        Expected{"config_script/arguments.txt", "megatron-lm", ""},
        Expected{"config_script/nemo2.sh", "nemo", "--model llama3-8b"},
        Expected{"config_script/bridge.sh", "megatron-bridge", "--model llama3-8b --gpus 64"},
        Expected{"config_toml/fsdp.toml", "torchtitan-toml", "--gpus 64"},
        Expected{"config_python/release.py", "torchtitan", "--gpus 64"},
        Expected{"config_python/fsdp.py", "torchtitan-main", "--gpus 64"},
        Expected{"config_yaml/nanotron.yaml", "nanotron", ""},
        Expected{"config_yaml/nemo1.yaml", "nemo-1", "--model gpt3-1.3b"},
        Expected{"config_yaml/accelerate.yaml", "accelerate",
                 "--model llama3-8b --seq 4096 --microbatch 1"},
        Expected{"config_yaml/foundry.yaml", "llm-foundry", "--gpus 64"},
        Expected{"config_yaml/llama_factory.yaml", "llama-factory", "--gpus 8"},
        Expected{"config_yaml/axolotl.yaml", "axolotl", "--gpus 8"},
        Expected{"config_json/zero2.json", "deepspeed",
                 "--model llama3-8b --gpus 64 --seq 4096"}}) {
    CAPTURE(each.file);
    const ProcessResult result =
        sandbox.plan("import " + config_file(each.file) + " --json " + each.flags);
    INFO(result.out << result.err);
    REQUIRE(result.err.empty());
    const auto config = nlohmann::ordered_json::parse(result.out);
    CHECK(config["format"] == each.format);
    CHECK(config["ask"].empty());
    CHECK(config["plan"].is_object());
  }
}

TEST_CASE("malformed configurations are refused with their line") {
  const Sandbox sandbox;
  const auto refused = [&](const std::string& from, const std::string& to) {
    write_changed(sandbox, from, to);
    return complaint(sandbox.plan("import train.sh"), 2);
  };
  CHECK(lacks(refused("--vocab-size 128256\n)", "--vocab-size 128256\n"), "train.sh line 4") == "");
  CHECK(lacks(refused("--tensor-model-parallel-size $TP", "--tensor-model-paralel-size $TP"),
              "did you mean 'tensor-model-parallel-size'?") == "");
  CHECK(lacks(refused("--tensor-model-parallel-size $TP", "--tensor-model-parallel-size four"),
              "train.sh line 11") == "");
  CHECK(lacks(refused("granularity full", "granularity most"), "one of full, selective") == "");
  CHECK(lacks(refused("--pipeline-model-parallel-size 2", "--pipeline-model-parallel-size 3"),
              "tp x cp x pp") == "");
  sandbox.write("broken.toml", "[training]\nseq_len = 8192\n[parallelism\n");
  CHECK(lacks(complaint(sandbox.plan("import broken.toml"), 2), "broken.toml line 3") == "");
  sandbox.write("broken.yaml", "parallelism:\n  dp: 4\n   tp: 2\n");
  CHECK(lacks(complaint(sandbox.plan("import broken.yaml"), 2), "broken.yaml line 3") == "");
  sandbox.write("broken.json", "{\n  \"zero_optimization\": {\"stage\": 3,}\n}\n");
  CHECK(lacks(complaint(sandbox.plan("import broken.json"), 2), "broken.json") == "");
  sandbox.write("broken.py", "config = f(\n");
  CHECK(lacks(complaint(sandbox.plan("import broken.py"), 2), "broken.py line 1") == "");
  sandbox.write("empty.yaml", "a: 1\n");
  CHECK(lacks(complaint(sandbox.plan("import empty.yaml"), 2), "a file of Megatron-LM") == "");
  sandbox.write("run.log", slurp(kConfigs + "training_log/nanotron.log"));
  CHECK(lacks(complaint(sandbox.plan("import run.log broken.py"), 2), "files of one kind") == "");
}

TEST_CASE("predict --from prices a configuration as its flags would") {
  const Sandbox sandbox;
  const auto from = document(sandbox.plan("predict --from " + kScript + " --json"));
  const auto flags = document(
      sandbox.plan("predict --model llama3-8b --gpus 64 --seq 8192 --global-batch 512 --tp 4 "
                   "--pp 2 --zero 1 --sequence-parallel --recompute full --overlap none --json"));
  CHECK(from["plan"]["recompute_layers"] == flags["plan"]["recompute_layers"]);
  CHECK(from["time"]["step_seconds"] == flags["time"]["step_seconds"]);
  const auto changed = document(sandbox.plan("predict --from " + kScript + " --tp 2 --json"));
  CHECK(changed["plan"]["tp"] == 2);
  CHECK(changed["plan"]["dp"] == 16);
}

TEST_CASE("explain --from begins with the price, the best single change and the best plan") {
  const Sandbox sandbox;
  const ProcessResult result = sandbox.plan("explain --from " + kScript);
  CHECK(result.exit_code == 0);
  CHECK(result.out.starts_with("Your configuration: "));
  for (const char* words : {"One change, recomputation, saves", "recompute full -> none",
                            "The recommended plan saves"}) {
    CHECK(lacks(result.out, words) == "");
  }
}

TEST_CASE("a fine-tuning job is explained from its file and the JSON that it names") {
  const Sandbox sandbox;
  const std::string job =
      "model_name_or_path: meta-llama/Meta-Llama-3-8B\nstage: sft\ndo_train: true\n"
      "finetuning_type: full\ndeepspeed: settings/ds_z3.json\ncutoff_len: 4096\npacking: true\n"
      "per_device_train_batch_size: 1\ngradient_accumulation_steps: 2\nbf16: true\n";
  // The name is that from the folder where the training is started, as in the tool's examples.
  sandbox.write("jobs/full/sft.yaml", job);
  const std::string absent =
      complaint(sandbox.plan("explain --from jobs/full/sft.yaml --gpus 8"), 2);
  CHECK(lacks(absent, "--zero: jobs/full/sft.yaml line 5: deepspeed names settings/ds_z3.json") ==
        "");
  sandbox.write("settings/ds_z3.json",
                R"({"gradient_accumulation_steps": "auto", "bf16": {"enabled": "auto"},
                    "zero_optimization": {"stage": 3, "overlap_comm": true}})");
  const ProcessResult explained = sandbox.plan("explain --from jobs/full/sft.yaml --gpus 8");
  INFO(explained.out << explained.err);
  CHECK(explained.exit_code == 0);
  CHECK(explained.out.starts_with("Your configuration: "));
  const auto above = document(sandbox.plan("import jobs/full/sft.yaml --gpus 8 --json"));
  CHECK(above["format"] == "llama-factory");
  CHECK(above["framework"] == "deepspeed");
  CHECK(above["plan"]["zero"] == 3);
  CHECK(above["request"]["global_batch"] == 16);
  const auto both =
      document(sandbox.plan("import jobs/full/sft.yaml settings/ds_z3.json --gpus 8 --json"));
  CHECK(both["plan"] == above["plan"]);
  sandbox.write("settings/ds_z3.json", "{\"zero_optimization\": {\"stage\": 7}}");
  CHECK(lacks(complaint(sandbox.plan("explain --from jobs/full/sft.yaml --gpus 8"), 2),
              "settings/ds_z3.json") == "");
  const ProcessResult axolotl =
      sandbox.plan("explain --from " + config_file("config_yaml/axolotl.yaml") + " --gpus 8");
  INFO(axolotl.out << axolotl.err);
  CHECK(axolotl.exit_code == 0);
  CHECK(axolotl.out.starts_with("Your configuration: "));
}

TEST_CASE("explain --from says what a change costs that makes a configuration fit") {
  const Sandbox sandbox;
  const ProcessResult result = sandbox.plan(
      "explain --from " + kScript + " --gpus 8 --tp 1 --pp 1 --recompute none --global-batch 128");
  CHECK(lacks(result.out, "it is not likely to fit.\nOne change, ") == "");
  CHECK(lacks(result.out, "makes it fit and costs") == "");
}

TEST_CASE("that a job does not fit is said without what saves memory and has no price") {
  const Sandbox sandbox;
  const std::string tail = R"("stage": 3}, "bf16": {"enabled": true},
      "train_micro_batch_size_per_gpu": 1, "train_batch_size": 16})";
  sandbox.write("priced.json", R"({"zero_optimization": {)" + tail);
  sandbox.write("offload.json",
                R"({"zero_optimization": {"offload_param": {"device": "cpu"}, )" + tail);
  sandbox.write("fsdp.yaml",
                slurp(kConfigs + "config_yaml/accelerate.yaml") + "\nmachine_rank: 0\n");
  std::string fsdp = slurp(sandbox.file("fsdp.yaml"));
  fsdp.replace(fsdp.find("  fsdp_version: 2"), 17,
               "  fsdp_version: 2\n  fsdp_offload_params: true");
  sandbox.write("fsdp.yaml", fsdp);
  const std::string job = " --model llama3-70b --gpus 2 --seq 4096";
  const std::string without =
      "without the offload of parameters that your job has, which has no price";
  const auto one_line = [](std::string text) {
    std::string out;
    for (const char c : text) {
      if (c != '\n' && c != ' ') {
        out += c;
      } else if (!out.empty() && out.back() != ' ') {
        out += ' ';
      }
    }
    return out;
  };
  const ProcessResult own = sandbox.plan("explain --from priced.json" + job);
  CHECK(own.exit_code == 1);
  CHECK(lacks(one_line(own.out), without) != "");
  const ProcessResult open = sandbox.plan("explain --from offload.json" + job);
  CHECK(open.exit_code == 0);
  CHECK(lacks(one_line(open.out), "it is not likely to fit " + without) == "");
  CHECK(lacks(one_line(open.out), "Nothing fits " + without) == "");
  CHECK(lacks(one_line(sandbox.plan("import offload.json" + job).out), "too much") == "");
  CHECK(lacks(one_line(sandbox.plan("import offload.json" + job).out), without) == "");
  const auto json = document(sandbox.plan("import fsdp.yaml --json --microbatch 1" + job));
  CHECK(json["unpriced_savings"] == nlohmann::ordered_json({"the offload of parameters"}));
  const auto predicted =
      document(sandbox.plan("predict --json --microbatch 1 --from fsdp.yaml" + job));
  CHECK(predicted["fits"] == false);
}

TEST_CASE("an import names the settings that it does not read") {
  const Sandbox sandbox;
  write_changed(sandbox, "--vocab-size 128256\n", "--vocab-size 128256 --log-interval 1\n");
  const auto config = document(sandbox.plan("import train.sh --json"));
  const std::string text = sandbox.plan("import train.sh").out;
  const std::size_t of = text.find(" of ");
  const int read = std::stoi(text.substr(text.rfind(' ', of - 1) + 1));
  const int all = std::stoi(text.substr(of + 4));
  CHECK(static_cast<int>(config["not_read"].size() + config["not_priced"].size()) == all - read);
  CHECK(lacks(config["not_read"].dump(), "--log-interval") == "");
  CHECK(lacks(text, "Not read") == "");
  CHECK(lacks(text, "--log-interval") == "");
}

TEST_CASE("the arguments in a training log are a configuration to start from") {
  const Sandbox sandbox;
  const std::string log = config_file("training_log/megatron_core.log");
  const auto from = document(sandbox.plan("predict --from " + log + " --cluster dgx-b200 --json"));
  CHECK(from["plan"]["tp"] == 2);
  CHECK(from["plan"]["dp"] == 4);
  // Longer than any configuration: its beginning is read.
  std::string text = slurp(kConfigs + "training_log/megatron_core.log");
  text.append(5 << 20, '\n');
  sandbox.write("long.log", text);
  const auto longer = document(sandbox.plan("predict --from long.log --cluster dgx-b200 --json"));
  CHECK(longer["plan"] == from["plan"]);
  sandbox.write("long.sh", std::string(5 << 20, '\n'));
  CHECK(lacks(complaint(sandbox.plan("predict --from long.sh"), 2), "long.sh") == "");
}

}  // namespace
}  // namespace echelon::test
