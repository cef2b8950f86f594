// Help, man page, completion, doctor, and messages of commands.
#include <string>

#include "tests/cli/program.hpp"
#include "tests/cli/run_reports.hpp"
#include "tests/places.hpp"
#include "tests/support/skip.hpp"

using namespace echelon;
using echelon::test::differs_from_golden;
using echelon::test::lacks;
using echelon::test::Sandbox;

namespace {

/// What bash offers for the word `at` of a command line.
class BashCompletion {
 public:
  BashCompletion() {
    REQUIRE(sandbox_.shell(sandbox_.program() + " completion bash >plan.bash").exit_code == 0);
  }
  std::string operator()(const std::string& words, int at) const {
    return sandbox_
        .shell("bash -c 'source ./plan.bash; COMP_WORDS=(" + words +
               "); COMP_CWORD=" + std::to_string(at) + "; _plan; echo \"${COMPREPLY[@]}\"'")
        .out;
  }

 private:
  Sandbox sandbox_;
};

}  // namespace

TEST_CASE("help matches its golden files") {
  const Sandbox sandbox;
  CHECK(differs_from_golden("help.txt", sandbox.plan("--help").out) == "");
  CHECK(differs_from_golden("help-predict.txt", sandbox.plan("predict --help").out) == "");
}

TEST_CASE("every command has help with usage and an example, reached three ways") {
  const Sandbox sandbox;
  for (const std::string command :
       {"search", "predict", "compare", "validate", "fit", "topo list", "topo show", "topo check",
        "topo collectives", "gui", "models", "doctor", "completion", "man"}) {
    CAPTURE(command);
    const ProcessResult help = sandbox.plan(command + " --help");
    CHECK(help.exit_code == 0);
    CHECK(help.err.empty());
    CHECK(lacks(help.out, "Usage") == "");
    CHECK(lacks(help.out, "Example") == "");
    const bool reports = command != "completion" && command != "man";
    CHECK((lacks(help.out, "--json") == "") == reports);
    CHECK(sandbox.plan("help " + command).out == help.out);
    CHECK(sandbox.plan("-h " + command).out == help.out);
  }
}

TEST_CASE("help names no command that does not exist") {
  const Sandbox sandbox;
  const std::string out = sandbox.plan("--help").out;
  CHECK(lacks(out, "plan export") != "");
}

TEST_CASE("without a display or its packages the window fails with one line") {
  const Sandbox sandbox;
  const std::string blind = echelon::test::complaint(sandbox.plan("gui --model gpt2"), 3);
  CHECK(lacks(blind, "plan gui") == "");
  const std::string misspelt = echelon::test::complaint(sandbox.plan("gui --modle gpt2"), 2);
  CHECK(lacks(misspelt, "did you mean '--model'") == "");
}

TEST_CASE("the version names commit and libraries") {
  const Sandbox sandbox;
  const ProcessResult result = sandbox.plan("--version");
  CHECK(result.exit_code == 0);
  CHECK(result.out.starts_with("plan "));
  CHECK(lacks(result.out, "CLI11") == "");
}

TEST_CASE("man can show the man page") {
  const Sandbox sandbox;
  CHECK(sandbox.plan("man").out.starts_with(".TH PLAN 1"));
  if (sandbox.shell("command -v groff").exit_code != 0) return skip("groff is not installed");
  const ProcessResult shown = sandbox.shell(sandbox.program() + " man | groff -man -Tascii -ww -z");
  CHECK(shown.exit_code == 0);
  CHECK(shown.err.empty());
}

TEST_CASE("bash completes commands, flags, models and policies") {
  const BashCompletion complete;
  CHECK(complete("plan pre", 1) == "predict\n");
  CHECK(complete("plan --glob", 1) == "--global-batch --global-batch-tokens\n");
  CHECK(complete("plan topo co", 2) == "collectives\n");
  CHECK(complete("plan --recompute sel", 2) == "selective\n");
  CHECK(lacks(complete("plan --model llama3-", 2), "llama3-8b") == "");
  CHECK(lacks(complete("plan --cluster dgx-h1", 2), "dgx-h100") == "");
  CHECK(complete("plan export tri", 2) == "\n");
  CHECK(complete("plan export kub", 2) == "kubernetes\n");
  CHECK(lacks(complete("plan export \"\"", 2), "megatron-bridge") == "");
  CHECK(complete("plan help val", 2) == "validate\n");
  CHECK(lacks(complete("plan --precision bf16:adam-", 2), "bf16:adam-fp32-master") == "");
}

TEST_CASE("bash completes the flags that the command takes") {
  const BashCompletion complete;
  CHECK(lacks(complete("plan topo collectives --", 3), "--ranks") == "");
  CHECK(lacks(complete("plan topo collectives --", 3), "--learning-rate") != "");
  CHECK(lacks(complete("plan import --", 2), "--output") == "");
  CHECK(lacks(complete("plan import --", 2), "--steps") != "");
  CHECK(complete("plan run --ste", 2) == "--steps\n");
  CHECK(complete("plan --ste", 1) == "\n");
}

TEST_CASE("files of the repository that examples name exist") {
  const Sandbox sandbox;
  const std::filesystem::path root(ECHELON_SOURCE_DIR);
  int named = 0;
  const std::string page = sandbox.plan("man").out + sandbox.plan("run --help").out;
  for (std::size_t at = page.find("examples/"); at != std::string::npos;
       at = page.find("examples/", at + 1)) {
    const std::size_t end = page.find_first_of(" \n\"',)", at);
    std::string file = page.substr(at, end - at);
    std::erase(file, '\\');  // of the manual
    CAPTURE(file);
    CHECK(std::filesystem::exists(root / file));
    ++named;
  }
  CHECK(named >= 2);
}

TEST_CASE("zsh and fish have scripts of their own") {
  const Sandbox sandbox;
  CHECK(sandbox.plan("completion zsh").out.starts_with("#compdef plan"));
  CHECK(lacks(sandbox.plan("completion fish").out, "complete -c plan -l global-batch") == "");
}

TEST_CASE("zsh accepts its completion script") {
  const Sandbox sandbox;
  if (sandbox.shell("command -v zsh").exit_code != 0) return skip("zsh is not installed");
  const ProcessResult zsh = sandbox.shell(sandbox.program() + " completion zsh | zsh -n");
  CHECK(zsh.exit_code == 0);
  CHECK(zsh.err.empty());
}

TEST_CASE("doctor lists missing software and shows that planning needs none of it") {
  const Sandbox sandbox;
  const ProcessResult result = sandbox.plan("doctor", "PATH=/nowhere");
  CHECK(result.exit_code == 0);
  for (const char* part : {"CPU cores", "nvidia-smi", "NCCL", "mpirun", "apt-get install g++",
                           "not needed by this version", "calibrations", "hopper",
                           "Everything this version needs is here."}) {
    CHECK(lacks(result.out, part) == "");
  }
}

TEST_CASE("catalogs list every accepted name") {
  const Sandbox sandbox;
  CHECK(lacks(sandbox.plan("models").out, "gpt3-175b") == "");
  CHECK(lacks(sandbox.plan("topo list").out, "dgx-h100") == "");
  CHECK(lacks(sandbox.plan("topo show dgx-h100").out, "H100-SXM5-80GB") == "");
  CHECK(lacks(sandbox.plan("topo show aws-p5").out, "efa, 32 NICs of 100 Gbit/s") == "");
}

TEST_CASE("one value of a plan file can be changed, and the plans compared") {
  const Sandbox sandbox;
  REQUIRE(sandbox.plan("--model 7b --gpus 64 --microbatch 1 --tp 2 -o a.json").exit_code == 0);
  REQUIRE(sandbox.plan("predict a.json --tp 4 -o b.json").exit_code == 0);
  const ProcessResult result = sandbox.plan("compare a.json b.json");
  CHECK(result.exit_code == 0);
  for (const char* part :
       {"faster", "What differs", "tp", "B - A", "tp communication", "reserved"}) {
    CHECK(lacks(result.out, part) == "");
  }
  // dp follows from the changed tp.
  CHECK(lacks(slurp(sandbox.file("b.json")), "\"dp\": 16") == "");
}

TEST_CASE("a flag may stand before the command") {
  const Sandbox sandbox;
  CHECK(sandbox.plan("--model 7b --gpus 8 predict").out ==
        sandbox.plan("predict --model 7b --gpus 8").out);
}

TEST_CASE("every example in the help works as written") {
  const Sandbox sandbox;
  const std::string source = ECHELON_SOURCE_DIR;
  sandbox.write("my/config.json", R"({"model_type": "llama", "hidden_size": 4096,
    "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
    "vocab_size": 32000, "max_position_embeddings": 4096})");
  sandbox.write("my-cluster.json", slurp(source + "/topologies/catalog/clusters/dgx-h100.json"));
  sandbox.write("runs.csv",
                "row_id,source,grade,status,stack,model,layers,hidden,ffn_hidden,heads,kv_heads,"
                "vocab,seq,gated_mlp,tied_embeddings,attention,gpu,gpus,gpus_per_node,tp,pp,dp,"
                "microbatch,global_batch,recompute,precision,step_seconds\n"
                "r1,here,A,ok,nanotron,tiny,16,2048,8192,16,16,50000,2048,1,0,mha,H100-SXM5-80GB,"
                "8,8,2,1,4,1,32,none,bf16,1\n");
  sandbox.write("my-runs.csv", slurp(sandbox.file("runs.csv")));
  sandbox.write("train.log", slurp(source + "/tests/fuzz/corpus/training_log/nanotron.log"));
  sandbox.write("nccl-tests.csv", "op,nodes,ranks,bytes,time_us\nall_reduce,1,8,134217728,613.8\n");
  echelon::test::write_report(sandbox, "dp2.json", "--dp 2", 2);
  echelon::test::write_report(sandbox, "pp2.json", "--pp 2", 2);
  echelon::test::write_report(sandbox, "tp2.json", "--tp 2", 2);
  REQUIRE(sandbox.plan("--model 7b --gpus 64 -o plan.json").exit_code == 0);
  REQUIRE(sandbox.plan("--model 13b --gpus 64 -o other.json").exit_code == 0);
  int examples = 0;
  for (const char* page :
       {"", "search", "predict", "compare", "validate", "fit", "topo list", "topo show",
        "topo check", "topo collectives", "models", "doctor", "completion", "man", "help"}) {
    const std::string help = sandbox.plan(std::string(page) + " --help").out;
    std::size_t at = help.find("\nStart here\n");
    if (at == std::string::npos) at = help.find("\nExample");
    REQUIRE(at != std::string::npos);
    at = help.find('\n', at + 1) + 1;
    while (help.compare(at, 7, "  plan ") == 0) {
      const std::size_t end = help.find('\n', at);
      std::string arguments = help.substr(at + 7, end - at - 7);
      // A bare machine has no pager.
      if (arguments.ends_with("| less")) arguments.replace(arguments.size() - 4, 4, "cat");
      at = end + 1;
      const ProcessResult result = sandbox.plan(arguments);
      CAPTURE(arguments, result.err);
      CHECK(result.exit_code <= 1);  // a validation may be over its limit
      CHECK(result.err.empty());
      ++examples;
    }
  }
  CHECK(examples >= 15);
}

TEST_CASE("a GPU without bf16 is planned with fp16, with a note") {
  const Sandbox sandbox;
  CHECK(lacks(sandbox.plan("predict --model gpt2 --cluster dgx-v100 --gpus 8").out,
              "fp16:adam-fp32-master, because V100") == "");
}

TEST_CASE("a GPU before Ampere is planned without flash attention and context parallelism") {
  const Sandbox sandbox;
  const std::string found =
      sandbox.plan("--model gpt2 --cluster dgx-v100 --gpus 8 --seq 1024 --json").out;
  CHECK(lacks(found,
              "no flash attention, because megatron-core has none on compute capability 7.0") ==
        "");
  CHECK(lacks(found, "\"cp\": 1") == "");
  CHECK(lacks(sandbox.plan("predict --model gpt2 --cluster dgx-v100 --gpus 8 --cp 2").err,
              "megatron-core has no context parallelism (cp 2) without flash attention") == "");
  CHECK(lacks(sandbox
                  .plan("predict --model llama3.2-1b --cluster dgx-v100 --gpus 8 --cp 2 "
                        "--flash-attention --framework torchtitan --zero 3 --precision fp32")
                  .out,
              "cp 2") == "");
}

TEST_CASE("a framework with flash attention alone has no plan for a GPU before Ampere") {
  const Sandbox sandbox;
  const auto asked = sandbox.plan(
      "--model qwen2-0.5b --seq 1024 --cluster dgx-v100 --gpus 8 --framework nanotron");
  CHECK(asked.exit_code == 2);
  CHECK(lacks(asked.err,
              "nanotron on V100-SXM2-32GB, where it has no attention: of flash attention, its only "
              "one, it has none on compute capability 7.0: its kernels begin with 8.0") == "");
  CHECK(lacks(asked.err, "--framework megatron-core") == "");
  for (const char* flag : {" --no-flash-attention", " --flash-attention"}) {
    CHECK(sandbox
              .plan(std::string("predict --model qwen2-0.5b --seq 1024 --cluster dgx-v100 --gpus 8 "
                                "--framework nanotron") +
                    flag)
              .exit_code == 2);
  }
}

TEST_CASE("states that are not those of the framework's own precision are told") {
  const Sandbox sandbox;
  const auto told = [&](const char* framework, const char* precision) {
    return sandbox
        .plan(std::string("predict --model llama3-8b --gpus 8 --json --framework ") + framework +
              " --precision " + precision)
        .out;
  };
  CHECK(lacks(told("torchtitan", "fp8"),
              "states of fp8:adam-fp32-master, which are not those of torchtitan's own "
              "bf16:fsdp-fp32-shards (--precision)") == "");
  CHECK(lacks(told("megatron-core", "fp8"), "which are not those of") != "");
  CHECK(lacks(told("torchtitan", "fp32"), "which are not those of") != "");
  CHECK(lacks(told("torchtitan", "bf16"), "attention at 1.9 times the rate of the runs") == "");
  CHECK(lacks(told("nanotron", "bf16"), "attention at") != "");
  CHECK(lacks(told("torchtitan", "bf16:fsdp-fp32-shards"), "which are not those of") != "");
}

TEST_CASE("answers say what the description of a machine leaves open") {
  const Sandbox sandbox;
  const auto answer = [&](const std::string& cluster, const std::string& gpus) {
    return sandbox
        .plan("predict --model gpt2 --gpus " + gpus + " --cluster " + cluster, "COLUMNS=1000")
        .out;
  };
  const std::string peers = "no direct access between the GPUs of a node over PCIe";
  CHECK(lacks(answer("rtx-4090", "4"), peers) == "");
  CHECK(lacks(answer("rtx-4090", "1"), peers) != "");
  CHECK(lacks(answer("l40s", "4"), peers) != "");
  const std::string memory = "no offload of the optimizer: the description of minimal does not say";
  const std::string minimal =
      shell_word(std::string(ECHELON_SOURCE_DIR) + "/tests/topologies/machines/minimal.json");
  CHECK(lacks(answer(minimal, "1"), memory) == "");
  CHECK(lacks(answer("dgx-h100", "8"), "no offload of the optimizer") != "");
}

TEST_CASE("8k tokens are 8,192, as contexts are named") {
  const Sandbox sandbox;
  const auto sequence = [&](const std::string& given) {
    const ProcessResult ran = sandbox.plan("predict --model 7b --gpus 8 --json --seq " + given);
    return ran.exit_code <= 1 ? ran.out : ran.err;
  };
  CHECK(lacks(sequence("2048"), "\"seq\": 2048,") == "");
  CHECK(lacks(sequence("2k"), "\"seq\": 2048,") == "");
  CHECK(lacks(sequence("4K"), "\"seq\": 4096,") == "");
  CHECK(lacks(sequence("2Ki"), "\"seq\": 2048,") == "");
  CHECK(lacks(sequence("1Mi --global-batch 8"), "\"seq\": 1048576,") == "");
  CHECK(lacks(sequence("1m --global-batch 8"), "\"seq\": 1048576,") == "");
  for (const char* wrong : {"8kk", "1i", "1Gi", "Ki", "8 k"}) {
    CHECK(lacks(sequence(std::string("'") + wrong + "'"), std::string("'") + wrong + "'") == "");
  }
  CHECK(lacks(sequence("131,072"), "'131,072'; expected a whole number of at least 1") == "");
  CHECK(lacks(sequence("131,072"), "8k or 8Ki (8,192), 1M or 1Mi (1,048,576)") == "");
  CHECK(lacks(sequence("1.5k"), "--seq") == "");
  CHECK(lacks(sequence("5000M"), "--seq") == "");
  CHECK(lacks(sequence("k"), "--seq") == "");
}

TEST_CASE("a sequence beyond the model's context is told") {
  const Sandbox sandbox;
  const auto told = [&](const char* what) {
    return sandbox.plan(std::string("predict --gpus 8 --global-batch 8 --json ") + what).out;
  };
  CHECK(lacks(told("--model llama3-8b --seq 16384"),
              "sequence of 16,384 tokens, beyond the model's context of 8,192 (--seq)") == "");
  CHECK(lacks(told("--model gpt2 --seq 2048"),
              "beyond the model's context of 1,024, whose table of learned positions has to grow "
              "(--seq)") == "");
  CHECK(lacks(told("--model llama3-8b --seq 8192"), "beyond the model's context") != "");
}

TEST_CASE("another model may be tried on a plan file") {
  const Sandbox sandbox;
  REQUIRE(sandbox.plan("--model 7b --gpus 64 --pp 2 --vpp 1 -o a.json").exit_code == 0);
  CHECK(lacks(sandbox.plan("predict a.json --model 13b").out, "llama2-13b") == "");
}

TEST_CASE("arguments after -- are not flags") {
  const Sandbox sandbox;
  CHECK(lacks(sandbox.plan("predict -- --model").err, "--model: no such file") == "");
}
