// Every kind of wrong input: exit code 2 (3 for the environment), one line with the input found,
// the input expected and its place, and nothing on standard output.
#include <string>
#include <vector>

#include "tests/cli/program.hpp"

using namespace echelon;
using echelon::test::complaint;
using echelon::test::lacks;
using echelon::test::Sandbox;

namespace {

struct Case {
  std::string arguments;
  std::vector<std::string> says;
};

void check(const std::vector<Case>& cases, int exit_code) {
  const Sandbox sandbox;
  for (const Case& example : cases) {
    CAPTURE(example.arguments);
    const std::string message = complaint(sandbox.plan(example.arguments), exit_code);
    for (const std::string& part : example.says) CHECK(lacks(message, part) == "");
  }
}

}  // namespace

TEST_CASE("misspelt names get the nearest known one") {
  check({{"--gpsu 8", {"unknown flag '--gpsu'", "did you mean '--gpus'?"}},
         {"--tensor-model-parallel-size 2", {"unknown flag", "did you mean '--tp'?"}},
         {"--seq_length 4096", {"unknown flag '--seq_length'", "did you mean '--seq'?"}},
         {"--sequence 4096", {"did you mean '--seq'?"}},
         {"--batch-size=512", {"did you mean '--global-batch'?"}},
         {"--gradient-accumulation-steps 8", {"did you mean '--microbatch'?"}},
         {"--nodes 8", {"did you mean '--gpus'?"}},
         {"--fp8", {"did you mean '--precision'?"}},
         {"--config config.json", {"did you mean '--model'?"}},
         {"--model 7b --lora_rank 16", {"unknown flag '--lora_rank'", "'--lora'"}},
         {"--model 7b --peft lora", {"adapters are --lora RANK[:TARGETS]"}},
         {"--model 7b --load-in-4bit", {"QLoRA is --lora RANK --quantized-weights nf4"}},
         {"--model 7b --load-in-8bit", {"weights in 8 bits (LLM.int8()) have no price"}},
         {"--model 7b --bnb_4bit_use_double_quant", {"--quantized-weights nf4:double-quant"}},
         {"--model 7b --framework deepspeed --quantized-weights nf4",
          {"--quantized-weights", "without adapters (LoRA)", "--lora 16"}},
         {"--model 7b --lora 16 --quantized-weights nf4",
          {"megatron-core has no weights in nf4", "--framework torchtitan"}},
         {"--model 7b --lora 16 --framework deepspeed --quantized-weights nf4:fp32-rest",
          {"deepspeed casts all parameters to bf16", "nf4"}},
         {"--model 7b --lora 16 --framework deepspeed --quantized-weights int8",
          {"'int8'", "nf4:double-quant", "have no price"}},
         {"predict --model 7b --gpus 8 --lora 16 --framework deepspeed --quantized-weights nf4 "
          "--tp 2",
          {"weights in nf4 with tensor parallelism"}},
         {"--model 7b --gpus 8 --lora 16 --framework torchtitan --quantized-weights nf4 "
          "--recompute selective",
          {"--recompute", "transformers recomputes whole layers", "none or full"}},
         {"--model 7b --lora 0", {"--lora", "'0' as the rank", "from 1 to 4,096"}},
         {"--model 7b --lora 16:q_proj", {"--lora", "q_proj, k_proj, v_proj are linear_qkv"}},
         {"--model 7b --lora 16 --framework nanotron",
          {"--lora", "nanotron has no training of adapters", "--framework megatron-core"}},
         {"--model qwen3-30b-a3b --lora 16 --framework echelon",
          {"--lora", "no adapters in models with experts", "--framework megatron-core"}},
         {"--model deepseek-v3 --lora 16", {"--lora", "adapters on latent attention (MLA)"}},
         {"--model qwen3-30b-a3b --lora 16:linear_fc1",
          {"--lora", "adapters on experts", "targets linear_qkv,linear_proj"}},
         {"--gpu h100", {"plan search does not take it", "--cluster NAME (plan topo list)"}},
         {"run plan.json --learn-rate 1e-3", {"unknown flag", "did you mean '--learning-rate'?"}},
         {"--model 7b --micro-batch 1", {"did you mean '--microbatch'?"}},
         {"--model 7b --shard-grup 2", {"did you mean '--zero-group-size'?"}},
         {"-gpus 8", {"did you mean '--gpus'?"}},
         {"--model lama-7b --gpus 8", {"--model", "lama-7b", "did you mean 'llama-7b'?"}},
         {"--model 7b --cluster dgx-h10", {"--cluster", "did you mean 'dgx-h100'?"}},
         {"--model 7b --framework megatron-cor", {"--framework", "did you mean 'megatron-core'?"}},
         {"--model 7b --precision bf61", {"--precision", "did you mean"}},
         {"--model 7b --framework torchtitan --precision fp16",
          {"--precision", "does not scale the loss", "bf16 or fp32", "--framework megatron-core"}},
         {"--model 7b --gpus 8 --framework torchtitan --cluster dgx-v100",
          {"--framework", "V100-SXM2-32GB, which has no bf16 units", "or --precision fp32"}},
         {"--model 7b --schedule 1f1bb", {"--schedule", "did you mean '1f1b'?"}},
         {"--model 7b --recompute ful", {"--recompute", "did you mean 'full'?"}},
         {"--model 7b --recompute selective:moe_atc", {"--recompute", "did you mean 'moe_act'?"}},
         {"--model 7b --recompute selective:mla_up_proj",
          {"--recompute-modules", "without latent attention"}},
         {"--model 7b --recompute selective:mlp --framework torchtitan",
          {"--recompute-modules", "torchtitan has no recomputation of modules: mlp"}},
         {"--model 7b --recompute full --recompute-modules mlp",
          {"--recompute-modules", "recomputed modules mlp with recompute full"}},
         {"--model 7b --expert-imbalance 1.5", {"--expert-imbalance", "without any"}},
         {"--model 7b --gpus 8 --dispatcher deepep", {"--dispatcher", "without experts"}},
         {"--model deepseek-v3 --expert-imbalance 0.5", {"--expert-imbalance"}},
         {"--model 7b --offload-modules core_atn",
          {"--offload-modules", "unknown module to offload", "did you mean 'core_attn'?"}},
         {"--model 7b --offload-modules attn_proj", {"--offload-modules", "without core_attn"}},
         {"--model 7b --offload-modules moe_act", {"--offload-modules", "without experts"}},
         {"--model 7b --offload-modules core_attn --recompute full",
          {"--offload-modules", "recompute full"}},
         {"--model 7b --offload-modules core_attn --framework torchtitan",
          {"--offload-modules", "torchtitan has no offload of activations"}},
         {"--model llama3-405b --gpus 16384 --train-tokens 15.6T --mtbf 3h",
          {"--mtbf", "a failure every 5.27 s of the whole job, 2,048 nodes of 3.00 h each",
           "of one node, not of the job"}},
         {"--model 7b --document-lengths lognormal:1000",
          {"--document-lengths", "lognormal:MEAN:SIGMA"}},
         {"--model 7b --document-lengths lognormal:1000:9", {"--document-lengths", "9"}},
         {"--model 7b --document-lengths 512x", {"--document-lengths", "'512x'"}},
         {"--model 7b --document-lengths 0x3", {"--document-lengths", "at least 1"}},
         {"--model 7b --document-lengths no-such-file", {"--document-lengths", "no-such-file"}},
         {"--model 7b --document-lengths 512 --framework deepspeed",
          {"--document-lengths", "deepspeed", "torchtitan"}},
         {"--model 7b --document-lengths 512 --no-flash-attention",
          {"--document-lengths", "flash attention"}},
         {"serch --model 7b", {"unknown command 'serch'", "did you mean 'search'?"}},
         {"topo lst", {"did you mean 'list'?"}},
         {"topo show dgx-h10", {"topo show", "did you mean 'dgx-h100'?"}},
         {"topo collectives --op all_redcue", {"--op", "did you mean 'all_reduce'?"}},
         {"completion bsh", {"bash, zsh or fish", "did you mean 'bash'?"}}},
        2);
}

TEST_CASE("errors for numbers out of range give the range") {
  std::vector<Case> cases;
  for (const char* flag : {"tp", "dp", "pp", "vpp", "microbatch", "gpus", "seq", "global-batch",
                           "zero-group-size", "top", "train-tokens"}) {
    for (const char* value : {"0", "-1", "nan", "inf", "1e30", "3.5", "''", "seven", "0x10"}) {
      cases.push_back({std::string("--model 7b --") + flag + " " + value,
                       {std::string("--") + flag, "expected a whole number of at least 1"}});
    }
  }
  for (const char* value : {"-1", "4", "nan", "1e9"}) {
    cases.push_back({std::string("--model 7b --zero ") + value, {"--zero"}});
  }
  check(cases, 2);
}

TEST_CASE("errors for sizes out of range give the range") {
  check({{"--model 7b --max-memory 0", {"--max-memory", "more than 0"}},
         {"--model 7b --max-memory 76", {"--max-memory", "less than 1 MiB", "76GiB"}},
         {"--model 7b --max-memory 1KB", {"less than 1 MiB", "at most the 79.18 GiB"}},
         {"--model 7b --max-memory 1TiB", {"--max-memory", "at most"}},
         {"--model 7b --bucket 25", {"'25' without a unit", "nearest valid: --bucket 25MiB"}},
         {"--model 7b --max-memory -4GiB", {"--max-memory", "negative"}},
         {"--model 7b --max-memory 80Gb", {"--max-memory", "small b means bits"}},
         {"topo collectives --bytes 1Mi,x", {"--bytes", "'x'"}},
         {"topo collectives --bytes 0", {"--bytes"}},
         {"topo collectives --ranks 1", {"--ranks"}},
         {"topo collectives --fit none.csv", {"--fit", "none.csv"}},
         {"topo collectives -o fitted.json", {"--output", "--fit"}},
         {"validate /dev/null --max-error nan", {"--max-error"}},
         {"validate /dev/null --max-error -1", {"--max-error"}}},
        2);
}

TEST_CASE("the error for an unusable table of collectives names the row or the missing data") {
  const Sandbox sandbox;
  const std::string head = "op,nodes,ranks,bytes,time_us,machine\n";
  const auto says = [&](const std::string& text, const std::string& part) {
    sandbox.write("t.csv", text);
    return lacks(complaint(sandbox.plan("topo collectives --fit t.csv"), 2), part);
  };
  CHECK(says(head + "all_redcue,1,8,1048576,50,a\n", "all_redcue") == "");
  CHECK(says(head + "all_reduce,1,8,1048576,50,a\nall_reduce,1,8,-1,50,a\n", "row 3") == "");
  CHECK(says(head + "all_reduce,1,8,1048576,0,a\n", "time_us '0'") == "");
  CHECK(says(head + "all_reduce,1,8,1048576,9,a\nall_reduce,1,8,1048576,9,b\n", "2 machines") ==
        "");
  CHECK(says(head + "all_reduce,2,6,1048576,50,a\n", "6 ranks on 2 nodes") == "");
  CHECK(says(head + "all_reduce,1,8,1024,50,a\n", "no row of 1 MiB") == "");
  CHECK(says("op,nodes,ranks,bytes\nall_reduce,1,8,1024\n", "no column 'time_us'") == "");
  CHECK(says("op,nodes,ranks,bytes,time_us\n", "no row below a header") == "");
}

TEST_CASE("above one node the two neighbouring multiples are offered") {
  check({{"--model 7b --gpus 12", {"--gpus", "12", "8 or 16"}},
         {"topo collectives --ranks 12", {"--ranks", "12", "8 or 16"}}},
        2);
}

TEST_CASE("a number format that the GPU does not support is refused, not priced") {
  check(
      {{"--model 7b --cluster dgx-a100 --gpus 8 --precision fp8", {"--precision", "A100", "bf16"}},
       {"predict --model 7b --cluster dgx-v100 --gpus 8 --precision bf16",
        {"--precision", "V100", "fp16"}}},
      2);
}

TEST_CASE("only a search, and one of several recipes, chooses the states") {
  const Sandbox box;
  const auto refused = [&](const std::string& arguments) {
    const ProcessResult result = box.plan(arguments);
    CHECK(result.exit_code == 2);
    return result.err;
  };
  const std::string predict = refused("predict --model 7b --gpus 8 --tp 2 --precision bf16:any");
  CHECK(predict.find("only plan search chooses") != std::string::npos);
  CHECK(refused("explain --model 7b --gpus 8 --precision bf16:any").find("only plan search") !=
        std::string::npos);
  CHECK(
      refused("--model 7b --gpus 8 --precision fp32:any").find("nearest valid: --precision fp32") !=
      std::string::npos);
  CHECK(refused("--model 7b --gpus 8 --framework torchtitan --precision bf16:any")
            .find("torchtitan has several") != std::string::npos);
  CHECK(refused("--model 7b --gpus 8 --precision mxfp8:any").find("10.0 and below 12.0") !=
        std::string::npos);
}

TEST_CASE("degrees that do not divide are named") {
  check({{"predict --model 7b --gpus 8 --tp 3", {"3"}},
         {"predict --model 7b --gpus 64 --tp 64", {"--tp", "32"}},
         {"predict --model 7b --gpus 8 --global-batch 9 --dp 8", {"--global-batch", "9"}},
         {"predict --model 7b --gpus 64 --pp 64", {"--pp", "32"}},
         {"predict --model 7b --gpus 8 --tp 8 --seq 1001", {"--seq", "1001"}},
         {"predict --model 7b --gpus 8 --tp 2 --dp 8", {"16", "8"}},
         {"predict --model gpt2 --gpus 8 --tp 8", {"12 attention heads", "nearest valid: --tp 4"}},
         {"predict --model llama3-8b --gpus 60 --cp 3 --cluster gb200-nvl72",
          {"--seq", "nearest valid: --seq 8190 or 8196"}},
         {"predict --model 7b --gpus 8 --tp 8 --seq 1001", {"nearest valid: --seq 1000 or 1008"}},
         {"predict --model llama3-8b --gpus 64 --overlap ep",
          {"overlap of expert communication for a model without experts"}},
         {"predict --model nosuch --gpus 8", {"unknown model", "plan models lists them"}},
         {"--model 7b --gpus 8 --tp 3", {"no legal configuration", "3"}},
         {"--model 7b --gpus 8 --global-batch-tokens 1000", {"--global-batch-tokens", "4096"}}},
        2);
}

TEST_CASE("a search without a legal configuration blames the flag that predict blames") {
  check(
      {{"--model llama3-8b --gpus 64 --dp 64 --global-batch 32",
        {"no legal configuration", "global batch 32 is not a multiple of dp 64",
         "nearest valid: --global-batch 64"}},
       {"--model llama3-8b --gpus 64 --zero 3 --pp 2",
        {"no legal configuration", "megatron-core has no ZeRO-3 together with pipeline stages"}},
       {"--model llama3-70b --gpus 64 --framework torchtitan --tp 16",
        {"torchtitan has no copies of a key/value head on several tensor-parallel ranks"}},
       {"--model 7b --gpus 64 --schedule dualpipev", {"megatron-core has no DualPipeV schedule"}}},
      2);
  const Sandbox sandbox;
  const std::string told =
      sandbox.plan("--model llama3-8b --gpus 64 --dp 64 --global-batch 32").err;
  CHECK(told.find("do not multiply") == std::string::npos);
  CHECK(told.size() < 700);
}

TEST_CASE("constraints that contradict each other are named") {
  check({{"--model 7b --gpus 8 --sequence-parallel --no-sequence-parallel",
          {"--sequence-parallel", "--no-sequence-parallel"}},
         {"--model 7b --global-batch 64 --global-batch-tokens 4Mi",
          {"--global-batch", "--global-batch-tokens"}},
         {"--model 7b --gpus 8 --gpus 16", {"--gpus", "given twice", "'8'", "'16'"}},
         {"predict --model 7b --gpus 8 --recompute none --recompute-layers 4",
          {"--recompute-layers"}},
         {"predict --model 7b --gpus 8 --pp 2 --layers-per-stage 32", {"--layers-per-stage"}},
         {"predict --model 7b --gpus 8 --pp 2 --layers-per-stage 16,17", {"32"}}},
        2);
}

TEST_CASE("features missing in this version are distinguished from typing errors") {
  check({{"predict --model 7b --gpus 8 --pp 2 --schedule zb-h1", {"megatron-core", "zero-bubble"}},
         {"--model mixtral-8x7b --gpus 8 --dispatcher deep", {"--dispatcher", "deepep"}},
         {"predict --model qwen3-235b-a22b --cluster aws-p5 --gpus 128 --ep 16 --dispatcher deepep",
          {"deepep among 16 ranks", "aws-p5", "efa", "alltoall"}},
         {"predict --model mixtral-8x7b --gpus 8 --ep 8 --precision mxfp8",
          {"mxfp8", "10.0 and below 12.0"}},
         {"run plan.json", {"plan.json: no such file", "plan ... -o FILE"}},
         {"calibrate --backend tpu", {"--backend", "'tpu'", "one of cpu, cuda"}},
         {"export", {"nothing after it", "plan export FORMAT [PLAN.json]"}},
         {"topo import x.xml", {"--gpu", "no GPU named"}}},
        2);
}

TEST_CASE("context, experts, offload, order and budget are checked like every other flag") {
  check({{"--model 7b --gpus 8 --ep 8", {"expert parallelism for a model without experts"}},
         {"predict --model mixtral-8x7b --gpus 8 --ep 3", {"--ep", "3", "8 experts"}},
         {"predict --model 7b --gpus 8 --cp 2 --seq 4095", {"--seq", "cp 2"}},
         {"--model 7b --cp-comm ring", {"--cp-comm", "p2p"}},
         {"--model 7b --offload optimizer", {"--offload", "optimizer=SHARE"}},
         {"--model 7b --offload optimizer=2", {"--offload", "2"}},
         {"--model 7b --rank-order pp-dp-tp", {"--rank-order", "tp-cp-ep-dp-pp"}},
         {"--model 7b --time-limit soon", {"--time-limit", "soon"}},
         {"--model 7b --time-limit 0", {"--time-limit", "0"}}},
        2);
}

TEST_CASE("a bucket size is refused for plans without bucketed reductions") {
  check({{"predict --model gpt2 --gpus 1 --bucket 25MB", {"bucket size", "dp 1"}},
         {"predict --model gpt2 --gpus 8 --zero 3 --bucket 25MB", {"ZeRO-3", "layer by layer"}},
         {"predict --model gpt2 --gpus 8 --overlap none --bucket 25MB", {"no overlap of dp"}},
         {"--model gpt2 --gpus 8 --zero 2 --bucket 25MB", {"--bucket", "ZeRO-2"}},
         {"--model gpt2 --gpus 8 --framework megatron-2021 --bucket 25MB",
          {"--bucket", "megatron-2021, which reduces all at once"}},
         {"--model gpt2 --gpus 8 --bucket 0", {"--bucket", "'0'", "from 1 byte"}},
         {"--model gpt2 --gpus 8 --bucket 25Mb", {"--bucket", "write B for bytes"}}},
        2);
}

TEST_CASE("attention that the executing framework does not support is refused at planning time") {
  check({{"--model gpt2-tiny --cluster this-machine --gpus 1 --no-flash-attention",
          {"--flash-attention", "no flash attention with echelon"}},
         {"predict --model gpt2 --gpus 8 --framework echelon --no-flash-attention",
          {"--flash-attention", "no flash attention with echelon"}}},
        2);
}

TEST_CASE("flags and words that are out of place are named") {
  check({{"", {"--model", "plan --model 7b --gpus 64"}},
         {"--model", {"--model", "no value"}},
         {"--gpus --model 7b", {"--gpus", "no value"}},
         {"--model 7b stray", {"'stray'"}},
         {"predict a.json b.json", {"stray word 'b.json'"}},
         {"compare a.json", {"A.json B.json"}},
         {"validate", {"RUNS.csv"}},
         {"topo", {"list, show, check"}},
         {"models --tp 4", {"--tp", "plan search"}},
         {"predict --model 7b --top 3", {"--top", "plan search"}},
         {"--model 7b --json=1", {"--json", "switch"}},
         {"--model 7b --overlap dp,xx", {"--overlap", "'xx'"}},
         {"--model 7b --color sometimes", {"--color", "auto, always or never"}},
         {"--model 7b --json -o -", {"--output", "--json"}}},
        2);
}

TEST_CASE("a search without a legal configuration gives each reason once, and no others") {
  const Sandbox sandbox;
  const std::string degrees =
      complaint(sandbox.plan("--model 7b --gpus 8 --tp 2 --pp 2 --dp 4"), 2);
  const std::string reason = "the degrees do not multiply to the number of GPUs";
  REQUIRE(lacks(degrees, reason) == "");
  CHECK(degrees.find(reason) == degrees.rfind(reason));
  const std::string layers =
      complaint(sandbox.plan("--model 7b --gpus 8 --recompute full --recompute-layers 40"), 2);
  CHECK(lacks(layers, "--recompute-layers: 40 recomputed layers on a stage of 32") == "");
  CHECK(lacks(layers, "nearest valid: --recompute-layers 32") == "");
  CHECK(lacks(layers, "offload") != "");
}

TEST_CASE("missing files are wrong input") {
  check({{"--model no/such/config.json", {"--model", "no/such/config.json"}},
         {"--model 7b --cluster no/such.json", {"--cluster", "no/such.json"}},
         {"--model 7b --calibration none.json", {"--calibration", "none.json"}},
         {"predict none.json", {"none.json"}},
         {"compare none.json none.json", {"none.json"}},
         {"topo check none.json", {"none.json"}},
         {"validate none.csv", {"none.csv"}}},
        2);
}

TEST_CASE("broken files are reported with their name and position") {
  const Sandbox sandbox;
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "{\"a\":";
  const std::vector<std::pair<std::string, std::string>> files = {
      {"truncated.json", "{\"hidden_size\": 4096,"},
      {"typed.json", "{\"model_type\": \"llama\", \"hidden_size\": \"wide\"}"},
      {"twice.json", "{\"model_type\": \"llama\", \"model_type\": \"gpt2\"}"},
      {"deep.json", deep},
      {"bytes.json", "{\"model_type\": \"\xff\xfe\"}"},
      {"empty.json", ""},
      {"list.json", "[1, 2]"}};
  for (const auto& [name, content] : files) {
    sandbox.write(name, content);
    for (const std::string command :
         {"--gpus 8 --model ", "topo check ", "predict ", "--model 7b --gpus 8 --cluster ",
          "topo show ./", "--model 7b --gpus 8 --calibration "}) {
      CAPTURE(command, name);
      CHECK(lacks(complaint(sandbox.plan(command + name), 2), name) == "");
    }
  }
}

TEST_CASE("a 100 MB document is refused before it is read") {
  const Sandbox sandbox;
  REQUIRE(sandbox.shell("truncate -s 100M big.json").exit_code == 0);
  CHECK(lacks(complaint(sandbox.plan("--model big.json --gpus 8"), 2), "too long") == "");
}

TEST_CASE("errors with --json keep standard output empty") {
  const Sandbox sandbox;
  complaint(sandbox.plan("--model nosuch --json"), 2);
}
