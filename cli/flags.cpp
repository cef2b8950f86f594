#include "cli/flags.hpp"

#include <algorithm>
#include <array>

#include "core/framework/framework.hpp"

namespace echelon::cli {

namespace {

constexpr unsigned kConfiguration = kJob | kLayout;
constexpr bool kNotLayered = false;

const std::vector<Flag>& flag_table() {
  static const std::vector<Flag> kTable = {
      // What is trained, and on what
      {"model", "NAME|FILE",
       "model: a catalog name (7b, llama3-70b, gpt3-175b; see `plan models`), "
       "a HuggingFace config.json or our own model file",
       kJob},
      {"cluster", "NAME|FILE",
       "machine: a catalog name (see `plan topo list`), this-machine, or a description "
       "file; dgx-h100 unless given",
       kJob | kCollectives | kRun},
      {"gpus", "N", "number of GPUs: part of a node, or whole nodes", kJob},
      {"seq", "N", "tokens per sample; the model's context, at most 8,192, unless given", kJob},
      {"global-batch", "N", "samples per optimizer step; 4 Mi tokens unless given", kJob},
      {"global-batch-tokens", "N", "the same in tokens, for example 4Mi", kJob},
      {"precision", "RECIPE",
       "number formats: bf16, fp16, fp8, fp32, fp64, or with the optimizer's state: "
       "bf16:adam-fp32-master",
       kJob | kRun},
      {"flash-attention", "", "attention that keeps no sequence x sequence matrix (the default)",
       kJob, true, true},
      {"stack", "NAME", "training software whose kernels and habits are assumed",
       kJob | kCollectives, true, false, framework_choices()},
      {"calibration", "FILE",
       "measured rates; the shipped calibration of the GPU and stack unless "
       "given",
       kJob | kValidate | kCollectives | kRun | kFit},
      {"tokens", "N", "tokens to train on in all, for days and cost: 2T", kJob},
      {"max-memory", "SIZE",
       "GPU memory a plan may take, for example 76GiB; all but 2 GiB unless "
       "given",
       kJob},
      {"critical-batch", "N",
       "tokens per step beyond which a larger batch needs more tokens in all: 1 + batch / N times "
       "as many",
       kJob},
      {"mtbf", "TIME",
       "mean time between failures of one node, for example 6338h; the machine's own unless given",
       kJob},
      {"checkpoint-bandwidth", "RATE",
       "what the whole job writes to its storage, for example 20GB/s; 83 MB/s per GPU unless given",
       kJob},
      {"restart-time", "TIME", "from a failure until training goes on; 10min unless given", kJob},
      // One plan
      {"tp", "N", "tensor parallel ranks", kLayout},
      {"pp", "N", "pipeline stages", kLayout},
      {"dp", "N", "data parallel ranks", kLayout},
      {"vpp", "N", "model chunks per pipeline rank (interleaved schedule)", kLayout},
      {"cp", "N", "context parallel ranks: each holds a part of every sequence", kLayout},
      {"cp-comm", "KIND", "how they meet: p2p (a ring of keys and values) or a2a (by heads)",
       kLayout, true, false, "p2p a2a"},
      {"ep", "N", "expert parallel ranks: each holds a part of the experts", kLayout},
      {"etp", "N", "tensor parallel ranks inside experts", kLayout},
      {"microbatch", "N", "samples per forward pass of one rank", kLayout},
      {"layers-per-stage", "A,B,...", "layers of each pipeline stage", kLayout},
      {"zero", "0-3", "ZeRO stage: what data parallel ranks split of the training state", kLayout,
       true, false, "0 1 2 3"},
      {"shard-group", "N", "ranks over which ZeRO state is split; dp unless given", kLayout},
      {"sequence-parallel", "", "split norms and dropout over the tensor parallel ranks", kLayout,
       true, true},
      {"recompute", "POLICY",
       "activations dropped and computed again: none, selective, full, mixed", kLayout, true, false,
       "none selective full mixed"},
      {"recompute-layers", "N|A,B,...",
       "layers recomputed per stage, with --recompute full or mixed", kLayout},
      {"selective-layers", "N|A,B,...",
       "and layers whose attention core alone is recomputed, with --recompute mixed", kLayout},
      {"schedule", "NAME", "pipeline schedule: gpipe, 1f1b, interleaved, zb-h1", kLayout, true,
       false, "gpipe 1f1b interleaved zb-h1"},
      {"overlap", "AXES", "communication that runs beside compute: dp, tp, pp in a list, or none",
       kLayout, true, false, "dp tp pp dp,tp dp,pp dp,tp,pp none"},
      {"rank-order", "ORDER", "innermost axis first: tp-cp-ep-dp-pp or tp-cp-ep-pp-dp", kLayout,
       true, false, "tp-cp-ep-dp-pp tp-cp-ep-pp-dp"},
      {"offload", "LIST", "state kept in host memory: optimizer=SHARE, for example optimizer=1",
       kLayout},
      {"bucket", "SIZE",
       "gradients reduced together over data parallel ranks, for example 25MB (ZeRO 0 and 1); "
       "default: the framework's own rule",
       kLayout},
      // Search
      {"objective", "NAME",
       "what is best: step-time (unless given), cost (GPU time paid), memory-headroom, goodput "
       "(progress with failures counted)",
       kSearch, true, false, "step-time cost memory-headroom goodput"},
      {"gpus-at-most", "N", "search every sensible number of GPUs up to N, in place of --gpus",
       kSearch},
      {"top", "K", "plans to show; 5 unless given", kSearchAlone | kWindow},
      {"exhaustive", "", "price every legal combination instead of bounding", kSearch},
      {"budget", "SECONDS", "time limit of the search; the remaining optimality gap is reported",
       kSearchAlone},
      // In the contract, not in this version
      {"moe-dispatch", "KIND", "how tokens reach experts", kLater | kConfiguration},
      {"allow", "AXES", "axes the search may use", kLater | kSearch},
      {"forbid", "AXES", "axes the search may not use", kLater | kSearch},
      // Explanation
      {"why-not", "LIST", "another configuration, and what is wrong with it: tp=4,pp=2", kExplain,
       kNotLayered},
      // Validation
      {"where", "EXPR", "only rows that match, for example stack=nanotron,gpus>=64", kValidate,
       kNotLayered},
      {"calibrations", "DIR",
       "calibrations of single software releases; default: calibrations/ next to the table",
       kValidate, kNotLayered},
      {"limit", "ERROR",
       "exit 1 when the mean absolute error of step times is above it, for "
       "example 0.1",
       kValidate, kNotLayered},
      {"rows", "FILE",
       "write every row beside its prediction, its parts and its band, as comma-separated "
       "values",
       kValidate, kNotLayered},
      {"plot", "FILE.svg",
       "draw predicted over measured step times, a panel per source, with the 80 % band", kValidate,
       kNotLayered},
      {"page", "FILE.md",
       "write all figures as a page in Markdown; it shows the --plot picture when there is one",
       kValidate, kNotLayered},
      {"folds", "N",
       "judge out of fold: predict each of N parts of the table by calibrations fitted to the "
       "other "
       "parts",
       kValidate, kNotLayered},
      {"ablation", "",
       "with --folds: fit again without each term of the cost model, and say what that costs",
       kValidate, kNotLayered},
      // Collectives
      {"op", "NAME",
       "all_reduce, all_gather, reduce_scatter, all_to_all, broadcast or send_recv; all "
       "unless given",
       kCollectives, kNotLayered, false,
       "all_reduce all_gather reduce_scatter all_to_all broadcast send_recv"},
      {"ranks", "N", "GPUs that take part", kCollectives, kNotLayered},
      {"bytes", "A,B,...", "sizes as nccl-tests counts them, for example 1Mi,64Mi", kCollectives,
       kNotLayered},
      {"fit", "TABLE",
       "fit bandwidth and latency to a table of nccl-tests: columns op, nodes, ranks, bytes, "
       "time_us",
       kCollectives, kNotLayered},
      // Imports
      {"gpu", "NAME", "which GPU it is: a name of the catalog", kImport, kNotLayered},
      {"nic-rate", "RATE", "of a network card, where the file does not tell: 400Gbps", kImport,
       kNotLayered},
      {"name", "NAME", "what the machine is called; imported unless given", kImport, kNotLayered},
      // Runs
      {"backend", "NAME", "what executes the plan, or is measured: cpu or cuda", kRun | kCalibrate,
       true, false, "cpu cuda"},
      {"launcher", "NAME",
       "local (a thread per rank), mpi (mpirun, a process per rank) or env (somebody else starts "
       "the processes: srun, torchrun, mpirun); env where one of them is found, otherwise local, "
       "unless given",
       kRun | kCalibrate, true, false, "local mpi env"},
      {"steps", "N", "optimizer steps to run; 20 unless given", kRun, kNotLayered},
      {"data", "FILE",
       "what is trained on: llm.c .bin, Megatron .bin with its .idx, or text read byte by byte; "
       "made-up tokens unless given",
       kRun, kNotLayered},
      {"init-from", "DIR", "initial weights: a HuggingFace folder of the same model", kRun,
       kNotLayered},
      {"export", "DIR", "write the trained weights as a HuggingFace folder", kRun, kNotLayered},
      {"checkpoint-dir", "DIR", "where checkpoints are written; Ctrl-C writes one too", kRun,
       kNotLayered},
      {"checkpoint-every", "N", "steps between checkpoints; at the end alone unless given", kRun,
       kNotLayered},
      {"resume", "", "go on from the newest whole checkpoint of --checkpoint-dir", kRun,
       kNotLayered},
      {"seed", "N", "of initial weights and of the order of data; 1 unless given", kRun,
       kNotLayered},
      {"optimizer", "NAME", "adamw (the default) or adam", kRun, true, false, "adamw adam"},
      {"learning-rate", "X", "peak learning rate; 3e-4 unless given", kRun},
      {"least-learning-rate", "X", "where its cosine ends; a tenth of the peak unless given", kRun},
      {"warmup", "N", "steps until the peak", kRun},
      {"decay-until", "N", "step at which the cosine ends; the last one unless given", kRun},
      {"weight-decay", "X", "0.1 unless given; norms and biases do not decay", kRun},
      {"clip", "X", "largest gradient norm; 1 unless given, 0 for none", kRun},
      {"cores", "N", "processor cores the run may use; all unless given", kRun},
      {"deadline", "TIME",
       "longest wait of a rank for another before the run ends as hung; follows from the "
       "prediction unless given",
       kRun},
      {"report", "FILE.json", "write the run report", kRun, kNotLayered},
      {"trace", "FILE.json", "write the executed and the simulated step for Perfetto or Chrome",
       kRun, kNotLayered},
      {"events", "FD", "write one JSON object per line to this descriptor while running", kRun,
       kNotLayered},
      // The window
      {"screenshot", "DIR",
       "draw every view and the whole window as PNG into this folder, light and dark, without a "
       "display",
       kWindow, kNotLayered},
      // Output
      {"output", "FILE",
       "write the plan file, the fitted calibration or the description (- is standard output); for "
       "fit, the folder",
       kPlanFile | kCollectives | kFit | kCalibrate | kImport, kNotLayered, false, "", 'o'},
      {"json", "", "one JSON document on standard output, nothing else", kOutput, kNotLayered},
      {"quiet", "", "the answer without explanations or progress", kOutput, true, false, "", 'q'},
      {"color", "WHEN", "auto, always or never", kOutput, true, false, "auto always never"},
      {"no-config", "", "read no configuration file", kOutput, kNotLayered},
      {"help", "", "show help", kOutput, kNotLayered, false, "", 'h'},
      {"version", "", "show version, commit and build options", kOutput, kNotLayered, false, "",
       'V'},
  };
  return kTable;
}

}  // namespace

std::span<const Flag> flags() { return flag_table(); }

const Flag* find_flag(std::string_view name) {
  const auto all = flags();
  const auto at =
      std::find_if(all.begin(), all.end(), [&](const Flag& f) { return f.name == name; });
  return at == all.end() ? nullptr : &*at;
}

bool takes(const Verb& verb, const Flag& flag) {
  return ((verb.groups | kOutput) & flag.groups & ~unsigned{kLater}) != 0;
}

std::string config_key(const Flag& flag) {
  std::string key(flag.name);
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

std::string environment_name(const Flag& flag) {
  std::string name = "PLAN_";
  for (const char c : config_key(flag)) {
    name += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  }
  return name;
}

std::vector<std::string> first_words() {
  std::vector<std::string> words;
  for (const Verb& verb : verbs()) {
    std::string word(verb.name.substr(0, verb.name.find(' ')));
    if (std::find(words.begin(), words.end(), word) == words.end())
      words.push_back(std::move(word));
  }
  return words;
}

}  // namespace echelon::cli
