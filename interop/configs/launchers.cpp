// Jobs around a configuration: Slurm, mpirun, Kubernetes.
#include <fmt/format.h>

#include <algorithm>

#include "core/base/text.hpp"
#include "interop/configs/export.hpp"

namespace echelon {

namespace {

constexpr int kPort = 29500;  // torchrun's own default

struct JobSize {
  int nodes = 1;
  int per_node = 1;
};

JobSize size_of(const RunConfig& config) {
  const int per_node = std::max(1, std::min(config.gpus, config.gpus_per_node));
  return {std::max(1, config.gpus / per_node), per_node};
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

/// The lines of `text`, each behind `indent` blanks.
std::string indented(std::string_view text, std::size_t indent) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    out += std::string(end > 0 ? indent : 0, ' ') + std::string(text.substr(0, end)) + "\n";
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

/// Lines in front of the program: environment, the configuration as a file, where the format is
/// one. Then the program with its arguments.
struct Body {
  std::string file;
  std::string command;
};

Result<Body> body_of(const ConfigFormat& format, const RunConfig& config,
                     const ExportedConfig& exported) {
  if (format.program.empty() || format.starts_ranks) {
    return input_error("the format", fmt::format("{} starts its processes itself", format.title),
                       "a format that torchrun starts", std::string(format.usage));
  }
  std::string notes;  // but for how the file by itself is given to the framework
  for (std::size_t i = 1; i < exported.comments.size(); ++i) {
    notes += "# " + exported.comments[i] + "\n";
  }
  if (format.syntax == ConfigSyntax::arguments) {
    return Body{notes + exported.environment,
                fmt::format("{} \\\n{}", format.program_of(config.model), exported.arguments)};
  }
  // A Python module must not have the framework's own name.
  const std::string_view stem = format.syntax == ConfigSyntax::python ? "plans" : format.name;
  const std::string name = fmt::format("{}.{}", stem, extension_of(format.syntax));
  if (format.syntax != ConfigSyntax::json) notes.clear();  // others have them inside
  return Body{
      exported.environment + notes + fmt::format("cat > {} <<'END'\n{}END\n", name, exported.text),
      replaced(std::string(format.program), "FILE", name) + "\n"};
}

/// Source of --segment, which only Slurm's topology/block obeys: slurm.schedmd.com/topology.html;
/// a job whose nodes it does not divide is refused (SchedMD/slurm@0032c98,
/// src/plugins/topology/block/eval_nodes_block.c).
std::string slurm_head(const RunConfig& config, int tasks_per_node, int segment,
                       std::string_view more = "") {
  const JobSize size = size_of(config);
  const std::string placed = segment > 0 ? fmt::format("#SBATCH --segment={}\n", segment) : "";
  return fmt::format(
      "#!/bin/bash\n#SBATCH --job-name={}\n#SBATCH --nodes={}\n#SBATCH --ntasks-per-node={}\n"
      "#SBATCH --gpus-per-node={}\n{}#SBATCH --exclusive\n#SBATCH --time=FILL_IN\n{}\n",
      printable(config.model.name), size.nodes, tasks_per_node, size.per_node, placed, more);
}

/// Source: JobSet v1alpha2, and the headless service by which its pods find each other
/// (jobset.sigs.k8s.io, docs/concepts).
std::string job_set(const RunConfig& config, const Body& body) {
  const JobSize size = size_of(config);
  const std::string script = fmt::format(
      "{}torchrun --nproc_per_node {} --nnodes {} \\\n  --node_rank \"$JOB_COMPLETION_INDEX\" "
      "--master_addr train-workers-0-0.train --master_port {} \\\n  {}",
      body.file, size.per_node, size.nodes, kPort, body.command);
  return fmt::format(
      "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata:\n  name: train\nspec:\n"
      "  network:\n    enableDNSHostnames: true\n    subdomain: train\n"
      "  replicatedJobs:\n  - name: workers\n    replicas: 1\n    template:\n      spec:\n"
      "        parallelism: {0}\n        completions: {0}\n        completionMode: Indexed\n"
      "        backoffLimit: 0\n        template:\n          spec:\n"
      "            restartPolicy: Never\n            containers:\n            - name: train\n"
      "              image: FILL_IN\n              resources:\n                limits:\n"
      "                  {3}: {1}\n              command: [bash, -c]\n"
      "              args:\n              - |\n{2}",
      size.nodes, size.per_node, indented(script, 16), config.gpu_resource);
}

}  // namespace

const std::vector<std::string_view>& launchers() {
  static const std::vector<std::string_view> kLaunchers = {"slurm", "mpirun", "kubernetes"};
  return kLaunchers;
}

Result<std::string> launch_job(std::string_view launcher, const ConfigFormat& format,
                               const RunConfig& config, const ExportedConfig& exported,
                               int segment) {
  const Result<Body> body = body_of(format, config, exported);
  if (!body) return body.error();
  const JobSize size = size_of(config);
  if (launcher == "kubernetes") return job_set(config, *body);
  if (launcher == "slurm") {
    return slurm_head(config, 1, segment) +
           "export MASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n" +
           body->file +
           fmt::format(
               "srun --cpu-bind=none torchrun --nproc_per_node {} --nnodes {} --rdzv_id "
               "\"$SLURM_JOB_ID\" \\\n"
               "  --rdzv_backend c10d --rdzv_endpoint \"$MASTER_ADDR:{}\" \\\n  {}",
               size.per_node, size.nodes, kPort, body->command);
  }
  const std::string passed =
      exported.environment.find("export CUDA_DEVICE_MAX_CONNECTIONS") == std::string::npos
          ? ""
          : " -x CUDA_DEVICE_MAX_CONNECTIONS";
  // One process for each GPU; the program reads its rank from Open MPI's variables.
  return "#!/bin/bash\n" + body->file +
         fmt::format("export MASTER_ADDR=FILL_IN MASTER_PORT={}\n", kPort) +
         fmt::format(
             "mpirun -np {} --hostfile FILL_IN --map-by ppr:{}:node \\\n  -x MASTER_ADDR -x "
             "MASTER_PORT{} bash -c 'RANK=$OMPI_COMM_WORLD_RANK "
             "LOCAL_RANK=$OMPI_COMM_WORLD_LOCAL_RANK \\\n  WORLD_SIZE=$OMPI_COMM_WORLD_SIZE python "
             "\"$@\"' train \\\n  {}",
             config.gpus, size.per_node, passed, body->command);
}

std::string launch_plan_run(std::string_view launcher, const RunConfig& config,
                            const std::string& plan, int segment) {
  const JobSize size = size_of(config);
  // Repeated, it goes on: docs/run.md, "Start, survive, restart".
  const std::string command = fmt::format(
      "plan run {} --backend cuda --launcher env --steps FILL_IN "
      "--checkpoint-dir FILL_IN --checkpoint-every FILL_IN --resume auto --report report.json\n",
      plan);
  if (launcher == "slurm") {
    return slurm_head(config, size.per_node, segment,
                      "#SBATCH --requeue --open-mode=append --signal=TERM@120\n") +
           "srun --kill-on-bad-exit=1 --cpu-bind=none " + command +
           "case $? in 0|1|2|5|6) ;; *) scontrol requeue \"$SLURM_JOB_ID\";; esac\n";
  }
  if (launcher == "mpirun") {
    return fmt::format(
        "#!/bin/bash\nuntil mpirun -np {} --hostfile FILL_IN --map-by ppr:{}:node \\\n  {}"
        "do case $? in 1|2|5|6|130) break;; esac; sleep 10; done\n",
        config.gpus, size.per_node, command);
  }
  return fmt::format(
      "apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata:\n  name: train\nspec:\n"
      "  slotsPerWorker: {0}\n  mpiReplicaSpecs:\n    Launcher:\n      replicas: 1\n"
      "      template:\n        spec:\n          containers:\n          - name: launcher\n"
      "            image: FILL_IN\n            command: [bash, -c]\n            args:\n"
      "            - mpirun -np {1} {2}"
      "    Worker:\n      replicas: {3}\n      template:\n        spec:\n          containers:\n"
      "          - name: worker\n            image: FILL_IN\n            resources:\n"
      "              limits:\n                {4}: {0}\n",
      size.per_node, config.gpus, command, size.nodes, config.gpu_resource);
}

}  // namespace echelon
