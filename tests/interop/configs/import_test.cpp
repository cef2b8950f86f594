// Configurations as people write them: what is read, what is asked, what is refused and where.
#include <algorithm>
#include <string>
#include <string_view>

#include "core/framework/stage_layers.hpp"
#include "core/model/model_io.hpp"
#include "interop/configs/import.hpp"
#include "interop/configs/rows.hpp"
#include "interop/configs/shell_words.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

constexpr const char* kScript = R"(#!/bin/bash
#SBATCH --nodes=8
#SBATCH --gpus-per-node=8
TP=${TP:-4}
PP=2
MBS=1
: "${GBS:=256}"
MODEL_ARGS=(
  --num-layers 32          # Llama 3 8B
  --hidden-size 4096
  --ffn-hidden-size 14336
  --num-attention-heads 32
  --group-query-attention --num-query-groups 8
  --seq-length 8192 --max-position-embeddings 8192
  --swiglu --normalization RMSNorm --disable-bias-linear
  --untie-embeddings-and-output-weights
  --position-embedding-type rope --vocab-size 128256
)
MODEL_ARGS+=(--hidden-dropout 0 --attention-dropout 0)
PARALLEL="--tensor-model-parallel-size $TP --pipeline-model-parallel-size ${PP} --sequence-parallel"
export CUDA_DEVICE_MAX_CONNECTIONS=1
torchrun --nproc_per_node 8 --nnodes $((4 * PP)) pretrain_gpt.py \
  "${MODEL_ARGS[@]}" \
  $PARALLEL --use-distributed-optimizer --overlap-grad-reduce \
  --micro-batch-size $MBS --global-batch-size $GBS --bf16 \
  --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 2>&1 | tee log
)";

Result<ImportedConfig> imported(const std::string& name, const std::string& text,
                                GivenRun given = {}) {
  return import_config({{name, text}}, given);
}

std::string error_of(const std::string& name, const std::string& text, GivenRun given = {}) {
  const Result<ImportedConfig> read = imported(name, text, given);
  return read ? "no error" : read.error().message();
}

bool asks(const ImportedConfig& config, const std::string& flag) {
  for (const std::string& each : config.asks) {
    if (each.starts_with(flag + ":")) return true;
  }
  return false;
}

TEST_CASE("a Megatron script is read with its variables, arrays and sums") {
  const Result<ImportedConfig> read = imported("train.sh", kScript);
  REQUIRE(read);
  const RunConfig& run = read->config;
  CHECK(read->asks.empty());
  CHECK(read->format->name == "megatron-lm");
  CHECK(run.model_name == "llama3-8b");
  CHECK(run.gpus == 64);
  CHECK(run.plan.tp == 4);
  CHECK(run.plan.pp == 2);
  CHECK(run.plan.dp == 8);
  CHECK(run.plan.zero == 1);
  CHECK(run.plan.sequence_parallel);
  CHECK(run.global_batch == 256);
  CHECK(run.precision == "bf16:adam-fp32-master");
  for (const ConfigFinding& finding : read->findings) {  // of an operator that the model lacks
    CHECK(label_of(finding.field).find("Hadamard") == std::string::npos);
  }
  CHECK(run.plan.recompute == Recompute::full);
  CHECK(run.plan.recompute_layers == std::vector{16, 16});
}

TEST_CASE("a vocabulary that no file states is that of the catalog's only model with the shapes") {
  std::string text = kScript;
  const std::string vocabulary = " --vocab-size 128256";
  text.erase(text.find(vocabulary), vocabulary.size());
  const auto asks_between = [](const std::string& script, const std::string& names) {
    const Result<ImportedConfig> several = imported("train.sh", script);
    REQUIRE(several);
    INFO(names);
    CHECK(std::ranges::any_of(several->asks, [&](const std::string& each) {
      return each.starts_with("--model:") && each.find(names) != std::string::npos;
    }));
  };
  asks_between(text, "llama3-8b and mistral-7b-v0.3 of the catalog have these shapes");
  // The base of the rotary positions decides between them, if the script states it.
  for (const auto& [base, vocabulary_of_it] :
       {std::pair("500000", 128256), std::pair("1000000", 32768)}) {
    std::string rotating = text;
    rotating.insert(rotating.find("--hidden-size"), std::string("--rotary-base ") + base + " ");
    const Result<ImportedConfig> known = imported("train.sh", rotating);
    REQUIRE(known);
    CAPTURE(base);
    CHECK(known->asks.empty());
    CHECK(known->config.model.vocab == vocabulary_of_it);
  }
  const auto reshape = [&](const char* from, const std::string& to) {
    text.replace(text.find(from), std::string_view(from).size(), to);
  };
  reshape("32          #", "126         #");
  reshape("hidden-size 4096", "hidden-size 16384");
  reshape("ffn-hidden-size 14336", "ffn-hidden-size 53248");
  reshape("attention-heads 32", "attention-heads 128");
  const Result<ImportedConfig> one = imported("train.sh", text);
  REQUIRE(one);
  CHECK(one->asks.empty());
  CHECK(one->config.model.vocab == 128256);
  reshape("126         #", "80          #");
  reshape("hidden-size 16384", "hidden-size 8192");
  reshape("ffn-hidden-size 53248", "ffn-hidden-size 28672");
  reshape("attention-heads 128", "attention-heads 64");
  asks_between(text, "llama2-70b and llama3-70b");
  text.replace(text.find("seq-length 8192"), 15, "seq-length 4096");
  GivenRun given;
  given.model = *load_model("llama3-70b");
  const Result<ImportedConfig> named = imported("train.sh", text, given);
  REQUIRE(named);
  CHECK(named->asks.empty());
  CHECK(named->config.model.vocab == 128256);
}

TEST_CASE("what a script leaves unset is asked for, with its line") {
  const std::string text =
      "torchrun --nproc_per_node 8 --nnodes $NNODES pretrain_gpt.py --num-layers 32 \\\n"
      "  --hidden-size 4224 --num-attention-heads 33 --tensor-model-parallel-size $TP \\\n"
      "  --micro-batch-size 1 --seq-length 2048\n";
  const Result<ImportedConfig> read = imported("train.sh", text);
  REQUIRE(read);
  CHECK(asks(*read, "--gpus"));
  CHECK(asks(*read, "--tp"));
  CHECK(asks(*read, "--model"));
  bool line = false;
  for (const std::string& each : read->asks) {
    line = line || each.find("train.sh line 2") != std::string::npos;
  }
  CHECK(line);
}

TEST_CASE("elements of an array split at blanks where it is used without quotes") {
  const auto with = [](const std::string& elements, const std::string& use) {
    const std::string text = "A=(" + elements + ")\n" + kScript;
    const std::size_t at = text.find("--bf16");
    return imported("train.sh", text.substr(0, at) + use + " " + text.substr(at));
  };
  const Result<ImportedConfig> split = with("'--fp8-format hybrid' --fp8-param-gather", "${A[@]}");
  REQUIRE(split);
  CHECK(split->config.precision.starts_with("fp8"));
  const Result<ImportedConfig> whole =
      with("'--fp8-format hybrid' --fp8-param-gather", "\"${A[@]}\"");
  REQUIRE(whole);  // the program gets one word, which is none of its options
  CHECK(whole->config.precision.starts_with("bf16"));
  const Result<ImportedConfig> branch =
      imported("train.sh",
               "D=()\nif [[ \"$X\" == fp8 ]]; then\n  D+=(\"--fp8-format hybrid\")\nfi\n"
               "python pretrain_gpt.py ${D[@]} --num-layers 2 --seq-length 8\n");
  REQUIRE(branch);
  CHECK(asks(*branch, "--precision"));
}

TEST_CASE("of options in one string those alone are asked for that have an unset variable") {
  const std::string script =
      "SEQ=$7\nLOG=\"log.$JOB.txt\"\nOPTIONS=\" --num-layers 32 --hidden-size 4096 \\\n"
      " --num-attention-heads 32 --seq-length ${SEQ} --vocab-size 128256 --log $LOG \\\n"
      " --micro-batch-size 1 --max-position-embeddings 4096 --global-batch-size $((2 * GAS))\"\n";
  for (const char* start : {"torchrun --nproc_per_node 8 pretrain_gpt.py $OPTIONS --bf16\n",
                            "CMD=\"pretrain_gpt.py $OPTIONS --nproc-per-node 8 --bf16\"\n"
                            "srun bash -c \"torchrun $CMD\"\n"}) {
    const Result<ImportedConfig> read = imported("train.sh", script + start);
    CAPTURE(start);
    REQUIRE(read);
    CHECK(read->config.model.layers == 32);
    CHECK(read->config.model.hidden == 4096);
    CHECK(read->config.plan.microbatch == 1);
    CHECK(read->config.gpus == 8);
    REQUIRE(read->asks.size() == 2);
    CHECK(read->asks[0].find("--seq-length has $7") != std::string::npos);
    CHECK(read->asks[1].find("--global-batch-size has GAS") != std::string::npos);
  }
}

TEST_CASE("Megatron-DeepSpeed is recognized, with its stage of ZeRO") {
  const Result<ImportedConfig> read = imported(
      "train.sh",
      "torchrun pretrain_gpt.py --num-layers 40 --hidden-size 5120 --optimizer adam --fp16 "
      "--checkpoint-activations --deepspeed --deepspeed_config ds.$JOB.json --zero-stage 1\n");
  REQUIRE(read);
  CHECK(read->config.framework == "megatron-deepspeed");
  CHECK_FALSE(asks(*read, "--framework"));
  CHECK(read->config.plan.zero == 1);
}

TEST_CASE("programs of Megatron-LM that train no decoder are refused") {
  const std::string options = " --num-layers 24 --hidden-size 1024 --num-attention-heads 16\n";
  const std::string bert = error_of("bert.sh", "torchrun a/pretrain_bert.py" + options);
  CHECK(bert.find("pretrain_bert.py, which trains an encoder") != std::string::npos);
  CHECK(error_of("t5.sh", "torchrun pretrain_t5.py" + options).find("decoder") !=
        std::string::npos);
  CHECK(error_of("serve.sh", "torchrun tools/run_text_generation_server.py" + options)
            .find("generates text") != std::string::npos);
  CHECK(error_of("own.sh", "torchrun my_pretraining.py" + options) == "no error");
}

TEST_CASE("a variable set in a branch is asked for") {
  const std::string text =
      "TP=2\nif [ \"$1\" = big ]; then\n  TP=8\nfi\n"
      "python pretrain_gpt.py --tensor-model-parallel-size $TP --num-layers 2 --seq-length 8\n";
  const Result<ImportedConfig> read = imported("train.sh", text);
  REQUIRE(read);
  CHECK(asks(*read, "--tp"));
}

/// What a script's last line, "run $X $Y", gets: each word, "?" where it depends on what the script
/// does not set.
std::string words_run(const std::string& script) {
  const Result<ShellScript> read = parse_shell(script + "\nrun $X $Y\n", "x.sh");
  REQUIRE(read);
  std::string out;
  for (const ShellWord& word : read->commands.back()) {
    out += " " + (word.unresolved.empty() ? word.text : "?");
  }
  return out;
}

TEST_CASE("conditions that follow from the script decide which commands count") {
  for (const auto& [script, expected] : std::vector<std::pair<std::string, std::string>>{
           {"X=fp8\nif [[ \"$X\" == \"fp8\" ]]; then\n  Y=1\nelse\n  Y=2\nfi", " run fp8 1"},
           {"X=bf16\nif [[ $X == fp8 ]]; then Y=1; else Y=2; fi", " run bf16 2"},
           {"X=b\nif [ $X = a ]; then\n Y=1\nelif [ $X = b ]\nthen\n Y=2\nelse\n Y=3\nfi",
            " run b 2"},
           {"X=2\nif [ $X -ge 2 ] && [ -n \"$X\" ]; then Y=1; else Y=2; fi", " run 2 1"},
           {"X=2\nif [[ ($X -lt 2 || $X == 2) && ! -z $X ]]; then Y=1; else Y=2; fi", " run 2 1"},
           {"X=16\nif (( X > 8 )); then Y=1; else Y=2; fi", " run 16 1"},
           {"X=4\nif (( X * 2 == 9 )); then Y=1; else Y=2; fi", " run 4 2"},
           {"X=a\n[[ $X == b ]] && Y=1\nY+=2", " run a 2"},
           {"X=a\n[[ $X == a ]] && Y=(1)\nX=c", " run c 1"},
           {"X=a\n[ $X = b ] || Y=4", " run a 4"},
           {"X=a\nmkdir d || X=b\ncd d && Y=5", " run a 5"},
           {"X=7b\ncase $X in\n  3b|4b) Y=1 ;;\n  \"7b\") Y=2 ;;\n  *) Y=3 ;;\nesac", " run 7b 2"},
           {"X=8b\ncase $X in\n 3b) Y=1;;\n (*) Y=3;;\nesac\nX=9", " run 9 3"},
           {"X=1\nif [ $X = 2 ]; then\n if [ $Z = 3 ]; then X=4; fi\nelse Y=9\nfi", " run 1 9"},
           // What the script does not set, a file, a pattern, a command: asked for.
           {"X=1\nif [ \"$1\" = big ]; then X=8; fi\nY=2", " run ? 2"},
           {"X=1\nif [ -f data ]; then X=8; fi\nY=2", " run ? 2"},
           {"X=1\nif [[ $X == 1* ]]; then X=8; fi\nY=2", " run ? 2"},
           {"X=1\nif [[ $X =~ ^(1|2)$ ]]; then X=8; fi\nY=2", " run ? 2"},
           {"X=1\nif nvidia-smi; then X=8; fi\nY=2", " run ? 2"},
           {"X=1\n[[ -v SLURM_JOB_ID ]] && X=8\nY=2", " run ? 2"},
           {"X=1\nfor i in 1 2; do X=8; done\nY=2", " run ? 2"},
           {"X=1\ncase $1 in a) X=8 ;; esac\nY=2", " run ? 2"},
           {"X=1\nif [ $1 = a ]; then X=1; fi\nY=2", " run 1 2"},
           // A branch that cannot run after one that perhaps does.
           {"X=1\nif [ $X = 2 ]; then X=3; elif [ $1 = a ]; then X=4; fi\nY=2", " run ? 2"},
           {"X=1\nif [ $X = 1 ]; then Y=3; elif [ $1 = a ]; then Y=4; else Y=5; fi", " run 1 3"},
       }) {
    INFO(script);
    CHECK(words_run(script) == expected);
  }
}

TEST_CASE("scripts are parsed, not executed") {
  const Result<ShellScript> script =
      parse_shell("X=$(touch /tmp/never)\nrun --a \"$X\" --b `id` --c ${Y:-3}\n", "x.sh");
  REQUIRE(script);
  REQUIRE(script->commands.size() == 1);
  const auto& words = script->commands.front();
  CHECK(words[2].unresolved == "a command's output");
  CHECK(words[6].text == "3");
  CHECK(arithmetic_value("2 * (3 + 4) - 10 / 5") == "12");
  CHECK(arithmetic_value("1 / 0").empty());
  CHECK(arithmetic_value("9223372036854775807 + 1").empty());
}

TEST_CASE("layouts of Megatron are counted chunk by chunk") {
  // The layout that Megatron-LM documents "Et*3|(tt|)*29,m|L"
  const Result<std::vector<int>> chunks = parse_megatron_layout("Et*3|(tt|)*29,m|L", "layout");
  REQUIRE(chunks);
  CHECK(chunks->size() == 32);
  CHECK(chunks->front() == 3);
  CHECK((*chunks)[1] == 2);
  CHECK(chunks->back() == 0);
  CHECK_FALSE(parse_megatron_layout("E(t", "layout"));
  CHECK_FALSE(parse_megatron_layout("Et*x", "layout"));
  CHECK_FALSE(parse_megatron_layout("(((((t*1000)*1000)*1000)*1000)*1000)", "layout"));
}

TEST_CASE("malformed configurations are refused with their line") {
  CHECK(error_of("train.sh", "torchrun a.py --num-layers 'x\n").find("line 1") !=
        std::string::npos);
  CHECK(error_of("train.sh", "A=(1 2\ntorchrun a.py --num-layers 2\n").find("line 1") !=
        std::string::npos);
  const std::string misspelt =
      error_of("train.sh", "torchrun a.py --num-layers 32 \\\n  --tensor-model-paralel-size 8\n");
  CHECK(misspelt.find("line 2") != std::string::npos);
  CHECK(misspelt.find("did you mean 'tensor-model-parallel-size'") != std::string::npos);
  const std::string value =
      error_of("train.sh", "torchrun a.py --num-layers 32 \\\n --recompute-granularity most\n");
  CHECK(value.find("line 2") != std::string::npos);
  CHECK(value.find("one of full, selective") != std::string::npos);
  CHECK(error_of("run.toml", "[training]\nseq_len = = 3\n").find("line 2") != std::string::npos);
  CHECK(error_of("run.toml", "[parallelism]\ntensor_parallel_degree = \"a\"\n").find("line 2") !=
        std::string::npos);
  CHECK(error_of("run.yaml", "parallelism:\n  tp: 2\n dp: [\n").find("line") != std::string::npos);
  CHECK(error_of("run.yaml", "parallelism:\n  tp: two\n").find("line 2") != std::string::npos);
  CHECK(error_of("run.json", "{\"zero_optimization\": {\"stage\": 3}\n").find("line 2") !=
        std::string::npos);
  CHECK(error_of("run.json", "{\"zero_optimization\": {\"stage\": -3}}")
            .find("/zero_optimization/stage") != std::string::npos);
}

TEST_CASE("nesting, aliases and growth are bounded") {
  CHECK(error_of("run.yaml", std::string(100'000, '[')).find("no error") == std::string::npos);
  std::string deep = "parallelism:\n";
  for (int i = 1; i < 100; ++i) deep += std::string(static_cast<std::size_t>(i), ' ') + "a:\n";
  CHECK(error_of("run.yaml", deep).find("levels") != std::string::npos);
  std::string laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 9; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    laughs += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int j = 0; j < 10; ++j) laughs += (j > 0 ? ", " : "") + before;
    laughs += "]\n";
  }
  CHECK(error_of("run.yaml", laughs).find("very many values") != std::string::npos);
  std::string doubling = "X=aaaaaaaa\n";
  for (int i = 0; i < 40; ++i) doubling += "X=$X$X\n";
  CHECK(error_of("train.sh", doubling + "run --num-layers $X\n").find("without bound") !=
        std::string::npos);
  CHECK(error_of("run.toml", std::string((4 << 20) + 1, ' ')).find("4 MiB") != std::string::npos);
}

TEST_CASE("torchtitan's defaults fill what a file leaves out") {
  const std::string text =
      "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nlocal_batch_size = 1\n"
      "seq_len = 8192\n[parallelism]\ndata_parallel_shard_degree = -1\n"
      "[activation_checkpoint]\nmode = \"selective\"\nselective_ac_option = \"op\"\n";
  GivenRun given;
  given.gpus = 64;
  const Result<ImportedConfig> read = imported("run.toml", text, given);
  REQUIRE(read);
  CHECK(read->asks.empty());
  CHECK(read->config.model.layers == 32);
  CHECK(read->config.plan.dp == 64);
  CHECK(read->config.plan.zero == 3);
  CHECK(read->config.plan.shard_group == 64);
  CHECK(read->config.global_batch == 64);
  CHECK(read->config.plan.recompute == Recompute::selective);
}

TEST_CASE("DeepSpeed's JSON is completed by the trainer's arguments") {
  const std::string json =
      "// a comment, as copies of examples have\n{\"bf16\": {\"enabled\": true},\n"
      "\"zero_optimization\": {\"stage\": 3}, \"train_batch_size\": \"auto\",\n"
      "\"train_micro_batch_size_per_gpu\": \"auto\", \"gradient_accumulation_steps\": \"auto\"}\n";
  GivenRun given;
  given.gpus = 8;
  given.sequence = 4096;
  const Result<ImportedConfig> alone = imported("ds.json", json, given);
  REQUIRE(alone);
  CHECK(asks(*alone, "--microbatch"));
  CHECK(asks(*alone, "--model"));
  const Result<ImportedConfig> both =
      import_config({{"ds.json", json},
                     {"train.sh",
                      "deepspeed train.py --deepspeed ds.json --per_device_train_batch_size 4 "
                      "--gradient_accumulation_steps 8 --gradient_checkpointing\n"}},
                    [&] {
                      GivenRun with = given;
                      with.format = "deepspeed";
                      return with;
                    }());
  REQUIRE(both);
  CHECK(both->config.plan.microbatch == 4);
  CHECK(both->config.global_batch == 256);
  CHECK(both->config.plan.recompute == Recompute::full);
  CHECK(both->config.plan.zero == 3);
}

}  // namespace
}  // namespace echelon
