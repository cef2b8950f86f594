// Every verb once.
#include <algorithm>
#include <array>

#include "cli/flags.hpp"

namespace echelon::cli {

namespace {

constexpr unsigned kOfPlan = kJob | kLayout;
constexpr std::size_t kMostReports = 1000;

const std::vector<Verb>& verb_table() {
  static const std::vector<Verb> kTable = {
      {"search",
       "",
       0,
       0,
       kOfPlan | kSearch | kSearchAlone | kPlanFile,
       "find the fastest plan that fits (the default verb)",
       "Prices every legal combination of tensor, pipeline and data parallelism, virtual stages, "
       "microbatch, ZeRO stage, sequence parallelism and recomputation. An axis given as a flag "
       "is "
       "fixed; the others are searched. Exit code 1 when nothing fits.",
       {"plan --model 7b --gpus 64", "plan --model llama3-70b --gpus 256 --tp 8 -o plan.json",
        "plan --model my/config.json --cluster dgx-a100 --gpus 32 --max-memory 70GiB --json"}},
      {"predict",
       "[PLAN.json]",
       0,
       1,
       kOfPlan | kPlanFile,
       "price one configuration, given by flags or by a plan file",
       "Degrees that are not given are 1, dp follows from the number of GPUs. With a plan file, "
       "flags "
       "change single values of it. Exit code 1 when the plan does not fit.",
       {"plan predict --model 7b --gpus 64 --tp 2 --microbatch 2 --zero 1",
        "plan predict plan.json --microbatch 4"}},
      {"explain",
       "[PLAN.json]",
       0,
       1,
       kOfPlan | kSearch | kExplain,
       "why this plan: from one GPU to the winner, what binds, and what would buy most",
       "Takes the flags of a search. Each step of the chain is a search with the techniques so "
       "far. "
       "--why-not answers for one other configuration: the rule it breaks, the memory it lacks, "
       "or "
       "the part that is slower, and the nearest plan that fits; with a plan file, for that "
       "plan.",
       {"plan explain --model 7b --gpus 64",
        "plan explain --model llama3-70b --gpus 256 --why-not tp=8,pp=1",
        "plan explain plan.json"}},
      {"compare",
       "A.json B.json",
       2,
       2,
       0,
       "two plan files, part by part",
       "Both plans are priced again by this version, so that only the plans differ.",
       {"plan compare plan.json other.json"}},
      {"validate",
       "RUNS.csv",
       1,
       1,
       kValidate,
       "predict every row of a table of measured runs and print the errors",
       "A row that cannot be predicted is listed with its reason. Exit code 1 when the mean "
       "absolute error of the step times is above --limit.",
       {"plan validate runs.csv --plot runs.svg --rows predicted.csv",
        "plan validate runs.csv --where 'stack=nanotron,gpus<=64' --limit 0.1"}},
      {"fit",
       "RUNS.csv|REPORT...",
       1,
       kMostReports,
       kFit,
       "fit calibrations to a table of measured runs, or the rates of a machine to run reports",
       "A table: for every GPU family and stack, its software and their releases, physical "
       "rates by robust least squares, each pulled to its prior, with what the runs say of it. "
       "The band of each calibration holds 80 % of the runs that were left out of the fit. -o "
       "writes one calibration file each into a folder; --calibration FILE plans with one. "
       "Reports of `plan run --report`, of one machine: the rates their plans were priced with, "
       "or those of --calibration, are refitted to the measured parts of their steps. -o writes "
       "the calibration file. Exit code 1 when no run was usable.",
       {"plan fit runs.csv", "plan fit runs.csv -o calibrations/",
        "plan fit dp2.json pp2.json tp2.json -o machine.json"}},
      {"run",
       "PLAN.json",
       1,
       1,
       kRun,
       "train the model of a plan on this machine, and compare with the prediction",
       "Executes the plan's program: a thread or a process per rank. The degrees are priced "
       "for this machine and for the stack that executes them; the report compares the measured "
       "step and memory with that prediction, part by part. Exit codes of a run that failed: 4 "
       "hang, 5 out of memory, 6 NaN or divergence, 7 a peer was lost.",
       {"plan --model gpt2-tiny --cluster this-machine --gpus 2 -o plan.json",
        "plan run plan.json --steps 50 --data examples/text.txt",
        "plan run plan.json --checkpoint-dir checkpoints --resume --report report.json"}},
      {"calibrate",
       "",
       0,
       0,
       kCalibrate,
       "measure this machine, and write the rates plans for it are priced with",
       "Times the kernels and communicators that `plan run` uses, on ranks of one core and of "
       "more, all cores busy; takes some seconds for each size. The rates go where --cluster "
       "this-machine looks for them (~/.config/echelon/this-machine.json), or into the file of "
       "-o, for --calibration. Let nothing else run meanwhile. With --launcher mpi collectives "
       "are "
       "timed between processes. With --backend cuda the GPUs of this machine are timed, in less "
       "than a minute; --cluster this-machine-gpus then plans for them. A description of the "
       "machine is written beside the rates: FILE.cluster.json.",
       {"plan calibrate", "plan calibrate --launcher mpi -o processes.json",
        "plan calibrate --backend cuda"}},
      {"gui",
       "[PLAN|SESSION]",
       0,
       1,
       kOfPlan | kSearch | kWindow,
       "open the window: plan by moving things, and see at once what changes",
       "Takes the flags of a search, or a plan file or a session that the window saved; flags "
       "then change single values of it. Needs plan-gui beside this program: ./plan gui builds "
       "it. Exit code 3 when there is no display.",
       {"plan gui --model 7b --gpus 64", "plan gui plan.json",
        "plan gui --screenshot pictures plan.json"}},
      {"topo list", "", 0, 0, 0, "the catalog of machines", "", {"plan topo list"}},
      {"topo show",
       "NAME|FILE",
       1,
       1,
       0,
       "one machine: GPU, node, fabric",
       "",
       {"plan topo show dgx-h100", "plan topo show my-cluster.json"}},
      {"topo check",
       "FILE",
       1,
       1,
       0,
       "read a description file and say what is wrong with it",
       "",
       {"plan topo check my-cluster.json"}},
      {"topo import",
       "FILE",
       1,
       1,
       kImport,
       "write a description of a node from what nvidia-smi or NCCL tell of it",
       "Reads what `nvidia-smi topo -m` prints, or the file that NCCL writes where "
       "NCCL_TOPO_DUMP_FILE names one, and says with a source for every number which GPUs share "
       "NVLinks, PCIe switches, sockets and network cards. What joins the nodes it cannot know: "
       "add a \"fabric\" by hand.",
       {"nvidia-smi topo -m > node.txt; plan topo import node.txt --gpu h100 --nic-rate 400Gbps "
        "-o my.json",
        "plan topo import nccl-topology.xml --gpu h200 -o my.json"}},
      {"topo collectives",
       "",
       0,
       0,
       kCollectives,
       "time of collectives on a machine",
       "The time by the model, the bound of the data sheet and, where a table of nccl-tests is "
       "known for the machine, the measured time. Bus bandwidth as nccl-tests defines it. --fit "
       "finds the two numbers that bring the model closest to a table of this machine, prices "
       "with them, and -o writes them as a calibration.",
       {"plan topo collectives --cluster dgx-h100 --op all_reduce --ranks 16 --bytes "
        "1Mi,64Mi,1Gi",
        "plan topo collectives --cluster my-cluster.json --fit nccl-tests.csv -o fitted.json"}},
      {"models", "", 0, 0, 0, "the catalog of models", "", {"plan models"}},
      {"doctor",
       "",
       0,
       0,
       0,
       "what this build and machine can do, and what would add the rest",
       "",
       {"plan doctor"}},
      {"completion",
       "bash|zsh|fish",
       1,
       1,
       0,
       "print a shell completion script",
       "",
       {"source <(plan completion bash)"}},
      {"man", "", 0, 0, 0, "print the manual page", "", {"plan man > plan.1", "man ./plan.1"}},
      {"help", "[VERB]", 0, 2, 0, "show help on a verb", "", {"plan help predict"}},
  };
  return kTable;
}  // namespace

constexpr std::array<std::string_view, 1> kLaterVerbs = {"export"};

}  // namespace

std::span<const Verb> verbs() { return verb_table(); }

const Verb* find_verb(std::string_view name) {
  const auto all = verbs();
  const auto at =
      std::find_if(all.begin(), all.end(), [&](const Verb& v) { return v.name == name; });
  return at == all.end() ? nullptr : &*at;
}

std::span<const std::string_view> later_verbs() { return kLaterVerbs; }

}  // namespace echelon::cli
