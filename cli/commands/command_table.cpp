#include "cli/commands/command_table.hpp"

#include <algorithm>

namespace echelon::cli {

/// Each is defined in a file of its own name.
CommandFunction search_command, predict_command, explain_command, compare_command, validate_command,
    fit_command, import_command, export_command, run_command, calibrate_command, gui_command,
    topo_list_command, topo_show_command, topo_check_command, topo_import_command,
    topo_collectives_command, models_command, doctor_command, completion_command, man_command,
    help_command;

namespace {

constexpr unsigned kOfPlan = kJob | kLayout;
constexpr std::size_t kMostReports = 1000;

const std::vector<Command>& command_table() {
  static const std::vector<Command> kTable = {
      {"search",
       search_command,
       "",
       0,
       0,
       kOfPlan | kSearch | kSearchAlone | kPlanFile,
       "find the fastest plan that fits (the default command)",
       "Prices every legal combination of tensor, pipeline and data parallelism, virtual stages, "
       "microbatch, ZeRO stage, sequence parallelism and recomputation. An axis given as a flag is "
       "fixed; the others are searched. Exit code 1 if nothing fits.",
       {"plan --model 7b --gpus 64", "plan --model llama3-70b --gpus 256 --tp 8 -o plan.json",
        "plan --model my/config.json --cluster dgx-a100 --gpus 32 --max-memory 70GiB --json"}},
      {"predict",
       predict_command,
       "[PLAN.json]",
       0,
       1,
       kOfPlan | kPlanFile | kFrom,
       "price one configuration, given by flags or by a plan file",
       "Degrees default to 1; dp follows from the number of GPUs. With a plan file, flags change "
       "single values of it. Exit code 1 if the plan does not fit.",
       {"plan predict --model 7b --gpus 64 --tp 2 --microbatch 2 --zero 1",
        "plan predict plan.json --microbatch 4"}},
      {"explain",
       explain_command,
       "[PLAN.json]",
       0,
       1,
       kOfPlan | kSearch | kExplain | kFrom,
       "explain the plan: the chain from one GPU to the winner, bottlenecks and best upgrades",
       "Takes the flags of a search. Each step of the chain is a search with the techniques "
       "introduced so far. --why-not explains one other configuration: the rule it breaks, the "
       "memory it lacks or the part that is slower, and the nearest plan that fits. With a plan "
       "file, it explains that plan.",
       {"plan explain --model 7b --gpus 64",
        "plan explain --model llama3-70b --gpus 256 --why-not tp=8,pp=1",
        "plan explain plan.json"}},
      {"compare",
       compare_command,
       "A.json B.json",
       2,
       2,
       0,
       "compare two plan files, part by part",
       "Both plans are priced again by this version, so that only the plans differ.",
       {"plan compare plan.json other.json"}},
      {"import",
       import_command,
       "FILE...",
       1,
       kMostReports,
       kOfPlan | kPlanFile,
       "read a configuration or a training log of another framework",
       "Configurations: scripts of Megatron-LM and Megatron-Bridge (parsed, never executed), the "
       "arguments that Megatron-LM prints, YAML of "
       "NeMo 1, nanotron, accelerate and LLM Foundry, TOML and recipes of torchtitan and JSON of "
       "DeepSpeed, as a plan, which -o writes. Files of one run, such as a script and the JSON it "
       "names, are "
       "given "
       "together. Exit code 2 if something is missing. Logs: those of Megatron-LM, "
       "Megatron-Bridge, "
       "Megatron-DeepSpeed, NeMo 2, torchtitan, nanotron, DeepSpeed, HuggingFace Trainer, "
       "LLM-Foundry, llm.c and llm.q, as measured runs; -o writes a table for `plan fit` and `plan "
       "validate`. Exit code 1 if a log cannot be trusted or lacks facts. Both report what was "
       "found, derived and assumed; what is missing must be given as a flag.",
       {"plan import train.sh --gpus 64 -o mine.json",
        "plan import deepspeed.json train.sh --model llama3-8b --gpus 8 --seq 4096",
        "plan import a.log b.log --cluster dgx-h100 -o runs.csv"}},
      {"export",
       export_command,
       "FORMAT [PLAN.json]",
       1,
       2,
       kOfPlan | kExport,
       "write a plan as the configuration of another framework, or as a job",
       "FORMAT is that of another framework (a wrong name lists them), or slurm, mpirun or "
       "kubernetes, for the job that starts the plan's "
       "framework, or trace, for the simulated step as a timeline. The plan is a plan file or "
       "given by the flags of `plan predict`. What the user "
       "has to fill in is marked FILL_IN. Exit code 1, with the list, if the format cannot express "
       "the plan.",
       {"plan export megatron-lm plan.json -o train.sh",
        "plan export torchtitan --model llama3-8b --gpus 64 --downgrade",
        "plan export slurm plan.json -o job.sbatch"},
       false},
      {"validate",
       validate_command,
       "RUNS.csv",
       1,
       1,
       kValidate,
       "predict every row of a table of measured runs and print the errors",
       "A row that cannot be predicted is listed with its reason. Exit code 1 when the mean "
       "absolute error of the step times is above --max-error.",
       {"plan validate runs.csv --plot runs.svg --predictions predicted.csv",
        "plan validate runs.csv --where 'framework=nanotron,gpus<=64' --max-error 0.1"}},
      {"fit",
       fit_command,
       "RUNS.csv|REPORT...|LOG...",
       1,
       kMostReports,
       kFit | kJob | kLayout,
       "fit the rates of a site to its runs: one is enough",
       "Starts from the shipped calibration (or that of --calibration) and works from one run: a "
       "row "
       "of a table, a training log of another framework (what it does not say, flags give) or a "
       "report "
       "of `plan run --report`. Runs must be of one GPU and framework. "
       "Prints how far each rate moved, what is still unknown, the 80 % band and the short run "
       "that "
       "would tell most; -o writes a calibration file, with which --calibration FILE plans. "
       "Reports "
       "are compared part by part, and start from the rates that their plans were priced with. "
       "--catalog fits the physical rates of every GPU family and framework of a table by robust "
       "least squares from the priors; runs of several publishers (column publisher, else source) "
       "are fitted for other sites than theirs, runs of one for its own. The band of each "
       "calibration holds 80 % of the runs that were left out of the fit, and -o writes one file "
       "each into a folder. Exit code 1 if no run was usable.",
       {"plan fit my-runs.csv -o mine.json", "plan fit train.log --cluster dgx-h100 -o mine.json",
        "plan fit dp2.json pp2.json tp2.json -o machine.json",
        "plan fit runs.csv --catalog -o calibrations/"}},
      {"run",
       run_command,
       "PLAN.json",
       1,
       1,
       kRun,
       "train the model of a plan on this machine and compare the step with the prediction",
       "Executes the plan's program with one thread or process per rank. The plan is priced for "
       "this machine and for the framework that executes it; the report compares the measured step "
       "and memory with that prediction, part by part. Exit codes of a failed run: 4 hang, 5 out "
       "of memory, 6 NaN or divergence, 7 lost peer.",
       {"plan --model gpt2-tiny --cluster this-machine --gpus 2 -o plan.json",
        "plan run plan.json --steps 50 --data examples/pride-and-prejudice.txt",
        "plan run plan.json --checkpoint-dir checkpoints --resume auto --report report.json",
        "plan run plan.json --checkpoint-dir checkpoints --resume auto --replan --gpus 1"}},
      {"calibrate",
       calibrate_command,
       "",
       0,
       0,
       kCalibrate,
       "measure this machine and write the rates that price its plans",
       "Times the kernels and communicators that `plan run` uses, for ranks of one and of several "
       "cores, with all cores busy; each size takes a few seconds. The rates are written where "
       "--cluster this-machine looks for them (~/.config/echelon/this-machine.json), or to the "
       "file of -o for --calibration. Run on an idle machine. With --launcher mpi, collectives are "
       "timed between processes. With --backend cuda, the GPUs of this machine are timed in less "
       "than a minute; --cluster this-machine-gpus then plans for them, and a description of the "
       "machine is written next to the rates: FILE.cluster.json.",
       {"plan calibrate", "plan calibrate --launcher mpi -o processes.json",
        "plan calibrate --backend cuda"}},
      {"gui",
       gui_command,
       "[PLAN|SESSION]",
       0,
       1,
       kOfPlan | kSearch | kWindow,
       "open the window: edit a plan and see the effect at once",
       "Takes the flags of a search, or a plan file or a session saved by the window; flags then "
       "change single values of it. Needs plan-gui next to this program; ./plan gui builds it. "
       "Exit code 3 if there is no display.",
       {"plan gui --model 7b --gpus 64", "plan gui plan.json",
        "plan gui --screenshot pictures plan.json"}},
      {"topo list",
       topo_list_command,
       "",
       0,
       0,
       0,
       "list the catalog of clusters",
       "",
       {"plan topo list"}},
      {"topo show",
       topo_show_command,
       "NAME|FILE",
       1,
       1,
       0,
       "show one cluster: GPU, node, fabric",
       "",
       {"plan topo show dgx-h100", "plan topo show my-cluster.json"}},
      {"topo check",
       topo_check_command,
       "FILE",
       1,
       1,
       0,
       "check a description file and report its errors and warnings",
       "",
       {"plan topo check my-cluster.json"}},
      {"topo import",
       topo_import_command,
       "FILE",
       1,
       1,
       kImport,
       "write the description of a node from the output of nvidia-smi, rocm-smi or NCCL",
       "Reads the output of `nvidia-smi topo -m` or `rocm-smi --showtopo`, or the file that NCCL "
       "or RCCL writes to NCCL_TOPO_DUMP_FILE, and lists, with a source for every number, which "
       "GPUs share NVLinks or xGMI, PCIe switches, sockets and NICs. The network between nodes is "
       "not in these files: add a \"fabric\" by hand.",
       {"nvidia-smi topo -m > node.txt; plan topo import node.txt --gpu h100 --nic-rate 400Gbps -o "
        "my.json",
        "plan topo import nccl-topology.xml --gpu h200 -o my.json"}},
      {"topo collectives",
       topo_collectives_command,
       "",
       0,
       0,
       kCollectives,
       "predict the time of collectives on a cluster",
       "Prints the modelled time, the data-sheet bound and, if a table of nccl-tests is shipped "
       "for the cluster, the measured time. Bus bandwidth is defined as in nccl-tests. --fit fits "
       "a bandwidth and a latency factor to a table of this cluster and prices with them; -o "
       "writes them as a calibration.",
       {"plan topo collectives --cluster dgx-h100 --op all_reduce --ranks 16 --bytes 1Mi,64Mi,1Gi",
        "plan topo collectives --cluster my-cluster.json --fit nccl-tests.csv -o fitted.json"}},
      {"models",
       models_command,
       "[NAME|FILE]",
       0,
       1,
       0,
       "list the catalog of models, or show one as it was read",
       "Of one model: its shapes, its parameters by the groups that parallelism splits, its model "
       "FLOPs, and what of its file is not priced. The file is a HuggingFace config.json or our "
       "own model file.",
       {"plan models", "plan models llama3-70b", "plan models mixtral-8x7b --json"}},
      {"doctor",
       doctor_command,
       "",
       0,
       0,
       0,
       "report what this build and machine can do and how to add the rest",
       "",
       {"plan doctor"}},
      {"completion",
       completion_command,
       "bash|zsh|fish",
       1,
       1,
       0,
       "print a shell completion script",
       "",
       {"source <(plan completion bash)"},
       false},
      {"man",
       man_command,
       "",
       0,
       0,
       0,
       "print the manual page",
       "",
       {"plan man > plan.1", "man ./plan.1"},
       false},
      {"help",
       help_command,
       "[COMMAND]",
       0,
       2,
       0,
       "show help on a command",
       "",
       {"plan help predict"},
       false},
  };
  return kTable;
}  // namespace

}  // namespace

std::span<const Command> commands() { return command_table(); }

const Command* find_command(std::string_view name) {
  const auto all = commands();
  const auto at =
      std::find_if(all.begin(), all.end(), [&](const Command& v) { return v.name == name; });
  return at == all.end() ? nullptr : &*at;
}

bool takes(const Command& command, const Flag& flag) {
  if (flag.name == "json" && !command.reports) return false;
  return ((command.groups | kOutput) & flag.groups) != 0;
}

std::vector<std::string> first_words() {
  std::vector<std::string> words;
  for (const Command& command : commands()) {
    std::string word(command.name.substr(0, command.name.find(' ')));
    if (std::find(words.begin(), words.end(), word) == words.end())
      words.push_back(std::move(word));
  }
  return words;
}

}  // namespace echelon::cli
