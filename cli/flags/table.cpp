#include "cli/flags/table.hpp"

#include <algorithm>

#include "cli/flags/allowed.hpp"
#include "core/framework/framework.hpp"
#include "core/plan/layer_code.hpp"
#include "core/plan/plan_fields.hpp"

namespace echelon::cli {

namespace {

constexpr bool kNotLayered = false;

/// `rows` with those of the fields of a plan before those of a search.
std::vector<Flag> with_plan_fields(std::vector<Flag> rows) {
  std::vector<Flag> fields;
  for (const PlanField* field : kPlanFieldsInHelp) {
    if (field != plan_field_of(field->flag)) continue;
    fields.push_back({.name = field->flag,
                      .value = field->value,
                      .help = field->help,
                      .groups = kLayout,
                      .negatable = field->kind == PlanFieldKind::on_off,
                      .choices = field->choices,
                      .aliases = field->aliases});
  }
  const auto search =
      std::ranges::find_if(rows, [](const Flag& row) { return (row.groups & kSearch) != 0; });
  rows.insert(search, fields.begin(), fields.end());
  return rows;
}

const std::vector<Flag>& flag_table() {
  static const std::vector<Flag> kTable = with_plan_fields({
      // Model, job and cluster
      {"model", "NAME|FILE",
       "model: a catalog name (7b, llama3-70b, gpt3-175b; see `plan models`), "
       "a HuggingFace config.json or our own model file",
       kJob},
      {"cluster", "NAME|FILE",
       "cluster: a catalog name (see `plan topo list`), this-machine, or a description file; "
       "default: dgx-h100",
       kJob | kCollectives | kRun},
      {"gpus", "N", "number of GPUs: part of a node, or whole nodes", kJob | kRun},
      {"seq", "N",
       "sequence length in tokens, 8k is 8,192; default: the model's context, at most 8,192", kJob},
      {"global-batch", "N", "sequences per optimizer step; default: 4 Mi tokens", kJob},
      {"global-batch-tokens", "N", "tokens per optimizer step, for example 4Mi", kJob},
      {"precision", "RECIPE",
       "precision recipe: bf16, fp16, fp8, mxfp8, nvfp4, fp32 or fp64, optionally with the "
       "optimizer state: "
       "bf16:adam-fp32-master; in a search bf16:any tries all states of the framework",
       kJob | kRun},
      {"flash-attention", "",
       "attention that never stores the sequence x sequence score matrix; default: where the "
       "framework has it for the format, the heads and the GPU",
       kJob, true, true},
      {.name = "layer-code",
       .value = "CODE",
       .help = "code of norms, activations and residuals: fused, a kernel each (the "
               "framework's own or torch.compile's); transformers, HuggingFace's modules, "
               "operation by operation; liger, those with Liger's kernels; default: fused",
       .groups = kJob,
       .choices = kLayerCodes},
      {"expert-imbalance", "X",
       "rows of the fullest GPU's experts over those of equal loads, at least 1; default: 1", kJob},
      {"document-lengths", "SPEC",
       "lengths of the documents that sequences are packed with, where attention stays within "
       "them: a length, lognormal:MEAN:SIGMA, a list LENGTHxDOCUMENTS,... or a file of lines "
       "LENGTH DOCUMENTS; default: one document per sequence",
       kJob},
      {.name = "lora",
       .value = "RANK[:TARGETS]",
       .help =
           "train low-rank adapters alone, on frozen weights: 16, or 16:linear_qkv,linear_proj; "
           "default targets: linear_qkv, linear_proj, linear_fc1 and linear_fc2, with experts "
           "the first two",
       .groups = kJob,
       .aliases = "lora-rank lora-r peft-rank"},
      {.name = "quantized-weights",
       .value = "FORMAT",
       .help = "keep the frozen weights of layers in 4 bits, as bitsandbytes does (QLoRA; with "
               "--lora): nf4, or with options as in nf4:double-quant,fp32-norms; fp32-norms keeps "
               "norms in fp32, fp32-rest all other parameters (prepare_model_for_kbit_training)",
       .groups = kJob,
       .aliases = "bnb-4bit-quant-type"},
      {.name = "framework",
       .value = "NAME",
       .help = "training framework to model; default: megatron-core, or echelon on this-machine",
       .groups = kJob | kCollectives,
       .choices = framework_choices(),
       .aliases = "stack"},
      {"calibration", "FILE",
       "calibration file with measured rates; default: the one shipped for the GPU and the "
       "framework",
       kJob | kValidate | kCollectives | kRun | kFit},
      {.name = "train-tokens",
       .value = "N",
       .help = "tokens of the whole training run, for days and cost: 2T",
       .groups = kJob,
       .aliases = "tokens"},
      {"max-memory", "SIZE",
       "GPU memory a plan may use, for example 76GiB; default: what is likely to fit", kJob},
      {"critical-batch", "N",
       "critical batch size in tokens: training takes 1 + batch / N times as many tokens", kJob},
      {"mtbf", "TIME",
       "mean time between failures of one node, for example 6338h; default: the cluster's own",
       kJob},
      {"checkpoint-bandwidth", "RATE",
       "aggregate checkpoint bandwidth of the job, for example 20GB/s; default: 83 MB/s per GPU",
       kJob},
      {"restart-time", "TIME", "time from a failure until training resumes; default: 10min", kJob},
      {"gpu-price", "USD",
       "price of a GPU hour in USD, for example 3.93; default: that of the cluster's description, "
       "else what its GPU costs on the market",
       kJob},
      {"goodput-from", "REPORT.json",
       "run report whose measured checkpoints, failures and restarts stand for those of this job",
       kJob},
      // Search
      {"objective", "NAME",
       "objective to optimize: step-time (default), cost (GPU time paid), memory-headroom, goodput "
       "(progress, failures included)",
       kSearch, true, false, "step-time cost memory-headroom goodput"},
      {"prefer", "INTENT",
       "risk and complexity that a faster step is worth: robust (little), balanced (default), "
       "fastest (any)",
       kSearch, true, false, "robust balanced fastest"},
      {.name = "max-gpus",
       .value = "N",
       .help = "search every sensible number of GPUs up to N, instead of --gpus",
       .groups = kSearch,
       .aliases = "gpus-at-most"},
      {"top", "K", "number of plans to show; default: 5", kSearchAlone | kWindow},
      {"front", "",
       "find the whole Pareto front of step and memory, not only that of the plans simulated",
       kSearchAlone | kWindow},
      {"exhaustive", "", "price every legal combination instead of bounding", kSearch},
      {.name = "time-limit",
       .value = "SECONDS",
       .help = "time limit of the search; the remaining optimality gap is reported, of an "
               "explanation what was not finished",
       .groups = kSearchAlone | kExplain,
       .aliases = "budget"},
      {"allow", "AXES", "axes the search may use: the degrees of all others are 1", kSearch, true,
       false, names_to_allow()},
      {"forbid", "LIST",
       "axes and techniques the search must not use: degrees, vpp, sequence-parallel, zero, "
       "recompute, recompute-modules, offload, cp-comm (a2a), rank-order (tp-cp-ep-pp-dp), "
       "dispatcher (others than alltoall), overlap-ep, cuda-graphs",
       kSearch, true, false, names_to_forbid()},
      // Explanation
      {"failure", "DIR",
       "explain a failed run from the flight records in this folder, without a plan", kExplain,
       kNotLayered},
      {"why-not", "LIST", "explain why this configuration was not chosen: tp=4,pp=2", kExplain,
       kNotLayered},
      // Validation
      {"where", "EXPR", "rows to keep, for example stack=nanotron,gpus>=64", kValidate | kFit,
       kNotLayered},
      {"catalog", "",
       "fit the calibrations of every GPU family and framework of a table, for other sites than "
       "those of its runs, into the folder of -o",
       kFit, kNotLayered},
      {.name = "max-error",
       .value = "ERROR",
       .help = "exit 1 if the mean absolute error of step times exceeds this, for example 0.1",
       .groups = kValidate,
       .layered = false,
       .aliases = "limit"},
      {.name = "predictions",
       .value = "FILE",
       .help = "write every row with its prediction, its parts and its 80 % band, as CSV",
       .groups = kValidate,
       .layered = false,
       .aliases = "rows"},
      {"plot", "FILE.svg",
       "plot predicted versus measured step times, one panel per source, with the 80 % band",
       kValidate, kNotLayered},
      {"page", "FILE.md",
       "write all figures as a Markdown page; it includes the --plot picture if there is one",
       kValidate, kNotLayered},
      {.name = "cross-validate",
       .value = "N",
       .help = "N-fold cross-validation: predict each part of the table by calibrations fitted to "
               "the other parts",
       .groups = kValidate,
       .layered = false,
       .aliases = "folds"},
      {.name = "leave-out",
       .value = "WHAT",
       .help = "predict the rows of every publisher (column publisher, else source), source, gpu "
               "or framework by calibrations fitted to all others",
       .groups = kValidate,
       .layered = false,
       .choices = "publisher source gpu framework"},
      {"first-runs", "K,...",
       "predict the rest of every left-out source after K of its runs; without --leave-out, "
       "publishers are left out",
       kValidate, kNotLayered},
      {"ablation", "",
       "with --cross-validate or --leave-out: refit without each term of the cost model and report "
       "the error "
       "increase",
       kValidate, kNotLayered},
      // Collectives
      {"op", "NAME",
       "collective: all_reduce, all_gather, reduce_scatter, all_to_all, broadcast or send_recv; "
       "default: all",
       kCollectives, kNotLayered, false,
       "all_reduce all_gather reduce_scatter all_to_all broadcast send_recv"},
      {"ranks", "N", "number of GPUs that take part", kCollectives, kNotLayered},
      {"bytes", "A,B,...", "sizes as nccl-tests counts them, for example 1Mi,64Mi", kCollectives,
       kNotLayered},
      {"fit", "TABLE",
       "fit bandwidth and latency to a table of nccl-tests: columns op, nodes, ranks, bytes, "
       "time_us",
       kCollectives, kNotLayered},
      // Imports
      {"gpu", "NAME", "GPU type: a name of the catalog", kImport, kNotLayered},
      {"nic-rate", "RATE", "NIC line rate, if the file omits it: 400Gbps", kImport, kNotLayered},
      {"name", "NAME", "name of the cluster; default: imported", kImport, kNotLayered},
      {"from", "FILE",
       "configuration of another framework to start from: a script of Megatron-LM, TOML of "
       "torchtitan, YAML or JSON (see `plan help import`)",
       kFrom | kExport, kNotLayered},
      {"downgrade", "", "export the nearest plan that the format can express, and report its price",
       kExport, kNotLayered},
      // Runs
      {"backend", "NAME", "backend to run or calibrate: cpu or cuda", kRun | kCalibrate, true,
       false, "cpu cuda"},
      {"launcher", "NAME",
       "local (a thread per rank), mpi (mpirun starts a process per rank) or env (use the ranks "
       "started by srun, torchrun or mpirun); default: env if such ranks are detected, otherwise "
       "local",
       kRun | kCalibrate, true, false, "local mpi env"},
      {"steps", "N", "optimizer steps to run; default: 20", kRun, kNotLayered},
      {"data", "FILE",
       "training data: llm.c .bin, Megatron .bin with its .idx, or text read byte by byte; "
       "default: synthetic tokens",
       kRun, kNotLayered},
      {"init-from", "DIR", "initial weights: a HuggingFace folder of the same model", kRun,
       kNotLayered},
      {"export", "DIR", "write the trained weights as a HuggingFace folder", kRun, kNotLayered},
      {"checkpoint-dir", "DIR", "folder for checkpoints; Ctrl-C also writes one", kRun,
       kNotLayered},
      {"checkpoint-every", "N", "steps between checkpoints; default: only at the end", kRun,
       kNotLayered},
      {.name = "resume",
       .value = "",
       .help = "resume from the latest intact checkpoint in --checkpoint-dir for --steps more "
               "steps; auto: start anew where there is none, and end at step --steps in all",
       .groups = kRun,
       .layered = kNotLayered,
       .choices = "auto"},
      {"replan", "",
       "with another number of ranks than the plan's, those of the launcher or --gpus, run the "
       "best "
       "plan for that number; it is written to --checkpoint-dir",
       kRun, kNotLayered},
      {"keep-last", "K", "newest checkpoints to keep, 0 for all; default: 2", kRun, kNotLayered},
      {"keep-every", "N", "keep the checkpoints of every Nth step as well", kRun, kNotLayered},
      {"async-checkpoints", "",
       "write checkpoints from a copy in host memory while the next steps run", kRun, kNotLayered},
      {"seed", "N", "random seed for weights and data order; default: 1", kRun, kNotLayered},
      {"optimizer", "NAME", "optimizer: adamw (default) or adam", kRun, true, false, "adamw adam"},
      {.name = "learning-rate",
       .value = "X",
       .help = "peak learning rate; default: 3e-4",
       .groups = kRun,
       .aliases = "lr"},
      {.name = "min-lr",
       .value = "X",
       .help = "final learning rate of the cosine decay; default: a tenth of the peak",
       .groups = kRun,
       .aliases = "least-learning-rate"},
      {.name = "warmup-steps",
       .value = "N",
       .help = "steps of linear warm-up to the peak learning rate; default: 0",
       .groups = kRun,
       .aliases = "warmup"},
      {.name = "lr-decay-steps",
       .value = "N",
       .help = "step at which the cosine decay ends; default: the last step",
       .groups = kRun,
       .aliases = "decay-until"},
      {"lora-alpha", "X",
       "alpha of adapters (--lora RANK), which are scaled by alpha/RANK; default: 32", kRun},
      {"weight-decay", "X", "weight decay; norms and biases are exempt; default: 0.1", kRun},
      {.name = "max-grad-norm",
       .value = "X",
       .help = "gradient norm to clip at, 0 for no clipping; default: 1",
       .groups = kRun,
       .aliases = "clip"},
      {"max-skipped-steps", "N",
       "steps in a row that may be skipped because gradients are NaN or infinite; one more ends "
       "the "
       "run; default: 3",
       kRun},
      {"cores", "N", "processor cores the run may use; default: all", kRun},
      {.name = "timeout",
       .value = "TIME",
       .help = "timeout before a stalled run is aborted; default: follows from the prediction",
       .groups = kRun,
       .aliases = "deadline"},
      {"flight-recorder", "DIR",
       "keep what each rank did last in this folder, for plan explain --failure; default: flight "
       "in "
       "the folder of the checkpoints, if there is one",
       kRun},
      {"inject", "FAULT@RANK:STEP",
       "commit this fault, to see how it is reported: stop, kill, slow, nan, corrupt, disk-full, "
       "skip, mismatch or oom; several with commas",
       kRun},
      {"report", "FILE.json", "write the run report", kRun, kNotLayered},
      {"trace", "FILE.json",
       "write the executed and the simulated step as a trace for Perfetto or Chrome", kRun,
       kNotLayered},
      {"events", "FD", "write one JSON object per line to this file descriptor while running", kRun,
       kNotLayered},
      // The window
      {"screenshot", "DIR",
       "render every view and the whole window as PNG into this folder, light and dark, without a "
       "display",
       kWindow, kNotLayered},
      // Output
      {"output", "FILE",
       "write the plan file, the fitted calibration or the description (- for standard output); "
       "for fit, the folder",
       kPlanFile | kCollectives | kFit | kCalibrate | kImport | kExport, kNotLayered, false, "",
       'o'},
      {"json", "", "print one JSON document on standard output and nothing else", kOutput,
       kNotLayered},
      {"quiet", "", "print the answer without explanations or progress", kOutput, true, false, "",
       'q'},
      {"color", "WHEN", "color output: auto, always or never", kOutput, true, false,
       "auto always never"},
      {"no-config", "", "read no configuration file", kOutput, kNotLayered},
      {"help", "", "show help", kOutput, kNotLayered, false, "", 'h'},
      {"version", "", "show version, commit and build options", kOutput, kNotLayered, false, "",
       'V'},
  });
  return kTable;
}

}  // namespace

std::span<const Flag> flags() { return flag_table(); }

const Flag* find_flag(std::string_view name) {
  const auto all = flags();
  const auto at = std::ranges::find(all, name, &Flag::name);
  return at == all.end() ? nullptr : &*at;
}

std::vector<std::string> spellings(const Flag& flag) {
  std::vector<std::string> out{std::string(flag.name)};
  for (std::string_view rest = flag.aliases; !rest.empty();) {
    const std::size_t end = std::min(rest.find(' '), rest.size());
    out.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return out;
}

const Flag* find_spelling(std::string_view spelling) {
  const auto all = flags();
  const auto at = std::ranges::find_if(all, [&](const Flag& flag) {
    const std::vector<std::string> known = spellings(flag);
    return std::ranges::find(known, spelling) != known.end();
  });
  return at == all.end() ? nullptr : &*at;
}

std::string config_key(std::string_view spelling) {
  std::string key(spelling);
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

std::string environment_name(std::string_view spelling) {
  std::string name = "PLAN_";
  for (const char c : config_key(spelling)) {
    name += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  }
  return name;
}

}  // namespace echelon::cli
