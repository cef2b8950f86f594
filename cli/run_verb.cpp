// plan run PLAN.json: prices the plan for this machine, starts plan-run on it, tells what came out.
#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>

#include "cli/child.hpp"
#include "cli/operations.hpp"
#include "cli/request.hpp"
#include "cli/run_relief.hpp"
#include "cli/scratch.hpp"
#include "cli/terminal.hpp"
#include "cli/this_machine.hpp"
#include "cli/verbs.hpp"
#include "core/base/files.hpp"
#include "core/base/parse_quantity.hpp"
#include "core/run/launch.hpp"
#include "core/run/run_event.hpp"
#include "core/run/run_settings.hpp"
#include "planner/explain/plan_detail.hpp"
#include "planner/search/search.hpp"
#include "report/format.hpp"
#include "report/run.hpp"
#include "report/text/text.hpp"

namespace echelon::cli {

namespace {

/// Reads flags into settings; remembers the first error.
class RunFlags {
 public:
  explicit RunFlags(const Settings& settings) : settings_(settings) {}

  void count(const char* flag, std::int64_t least, std::int64_t& out) {
    const Setting* setting = settings_.find(flag);
    if (setting == nullptr || error_) return;
    const Result<std::int64_t> value = parse_count(setting->value, setting->where, least);
    if (!value) return keep(value.error());
    out = *value;
  }
  void number(const char* flag, double least, double most, double& out) {
    const Setting* setting = settings_.find(flag);
    if (setting == nullptr || error_) return;
    const Result<double> value = parse_ratio(setting->value, setting->where, least, most);
    if (!value) return keep(value.error());
    out = *value;
  }
  void text(const char* flag, std::string& out) {
    const Setting* setting = settings_.find(flag);
    if (setting == nullptr || error_) return;
    if (setting->value.empty()) return keep(input_error(setting->where, "an empty name", "a path"));
    out = setting->value;
  }
  /// A file or folder to read.
  void existing(const char* flag, const char* what, std::string& out) {
    text(flag, out);
    const Setting* setting = settings_.find(flag);
    if (setting == nullptr || error_) return;
    if (const Status there = check_exists(out, setting->where, what); !there) keep(there.error());
  }
  std::string choice(const char* flag, std::initializer_list<const char*> allowed) {
    const Setting* setting = settings_.find(flag);
    if (setting == nullptr || error_) return *allowed.begin();
    std::string list;
    for (const char* each : allowed) {
      if (setting->value == each) return each;
      list += std::string(list.empty() ? "" : ", ") + each;
    }
    keep(input_error(setting->where, "'" + setting->value.substr(0, 40) + "'", "one of " + list));
    return *allowed.begin();
  }
  [[nodiscard]] const std::optional<Error>& error() const { return error_; }
  void keep(Error error) {
    if (!error_) error_ = std::move(error);
  }

 private:
  const Settings& settings_;
  std::optional<Error> error_;
};

Result<RunSettings> settings_of_call(const Invocation& call) {
  RunSettings s;
  RunFlags flags(call.settings);
  flags.count("steps", 1, s.steps);
  std::int64_t seed = static_cast<std::int64_t>(s.seed);
  flags.count("seed", 0, seed);
  s.seed = static_cast<std::uint64_t>(seed);
  const Setting* data = call.settings.find("data");
  if (data != nullptr && data->value.starts_with("synthetic"))
    flags.text("data", s.data);
  else
    flags.existing("data", "a file of tokens or of text, or synthetic:COUNT", s.data);
  flags.existing("init-from", "a folder with config.json and safetensors", s.init_from);
  flags.text("export", s.export_to);
  flags.text("checkpoint-dir", s.checkpoint_dir);
  flags.count("checkpoint-every", 1, s.checkpoint_every);
  s.resume = call.arguments.has("resume");
  if (s.checkpoint_dir.empty() && (s.resume || s.checkpoint_every > 0)) {
    flags.keep(input_error(s.resume ? "--resume" : "--checkpoint-every", "no --checkpoint-dir",
                           "the folder checkpoints are in: --checkpoint-dir DIR"));
  }
  constexpr double kMostRate = 100;
  flags.number("learning-rate", 0, kMostRate, s.learning_rate);
  s.least_learning_rate = 0.1 * s.learning_rate;
  flags.number("least-learning-rate", 0, kMostRate, s.least_learning_rate);
  flags.count("warmup", 0, s.warmup);
  flags.count("decay-until", 1, s.decay_until);
  flags.number("weight-decay", 0, 1, s.weight_decay);
  flags.number("clip", 0, 1e9, s.clip);
  s.decoupled = flags.choice("optimizer", {"adamw", "adam"}) == "adamw";
  s.backend = flags.choice("backend", {"cpu", "cuda"});
  s.launcher = flags.choice("launcher", {"local", "mpi", "env"});
  std::int64_t cores = 0;
  flags.count("cores", 1, cores);
  s.cores = static_cast<int>(cores);
  if (const Setting* deadline = call.settings.find("deadline")) {
    const Result<Seconds> time = parse_duration(*deadline);
    if (!time) return time.error();
    s.deadline = *time;
  }
  if (flags.error()) return *flags.error();
  return s;
}

/// This process among those of the run, when somebody else started them; sets what is found without
/// being asked for. A launcher of one process is none: all ranks are threads.
Result<std::optional<Launch>> launch_of_call(const Invocation& call, RunSettings& settings) {
  const bool asked = call.settings.find("launcher") != nullptr;
  if (asked && settings.launcher == "local") return std::optional<Launch>();
  Result<std::optional<Launch>> found = find_launch(environment_of(environ));
  if (!found) return found.error();
  const std::optional<Launch>& launch = *found;
  const bool several = launch && launch->size > 1;
  if (settings.launcher == "mpi" && several) {
    return input_error("--launcher", "mpi, in " + describe(*launch), "env",
                       "each of these processes would start an mpirun of its own");
  }
  if (settings.launcher == "mpi") return std::optional<Launch>();
  if (settings.launcher == "env" && !launch) return no_launch_error("--launcher env");
  if (!asked && several) settings.launcher = "env";
  if (settings.launcher != "env") return std::optional<Launch>();
  return found;
}

/// The descriptor of --events; -1 without it.
Result<int> events_of(const Invocation& call) {
  const auto given = call.arguments.value("events");
  if (!given) return -1;
  const Result<int> descriptor = parse_int(*given, "--events", 0);
  if (!descriptor) return descriptor.error();
  // An empty write says whether the descriptor is open, and for writing.
  if (write(*descriptor, "", 0) < 0) {
    return input_error("--events", *given, "an open file descriptor",
                       "for example: plan run plan.json --events 3 3>events.jsonl");
  }
  return *descriptor;
}

/// The degrees of `file` where they are executed, for the stack that executes them: on this
/// machine's cores, or on the GPUs the plan, or --cluster, is for.
Result<Asked> for_this_machine(const Invocation& call, const PlanFile& file,
                               const std::string& path, const std::string& backend) {
  const auto cluster = call.arguments.value("cluster");
  const bool told = cluster == kThisMachine;
  const bool on_gpus = backend == "cuda";
  if (on_gpus && (told || (!cluster && file.cluster == kThisMachine))) {
    return input_error(told ? "--cluster" : path, "a plan for this machine's cores",
                       "with --backend cuda a plan for GPUs",
                       "--cluster NAME prices its degrees for others; plan topo list");
  }
  if (cluster && !told && !on_gpus) {
    return input_error("--cluster", "'" + cluster->substr(0, 40) + "'", kThisMachine,
                       "plans run where they are started; plan predict prices them elsewhere");
  }
  if (file.cluster != kThisMachine && !told && !on_gpus) {
    return input_error(path,
                       fmt::format("a plan for {} ({})", file.cluster, counted(file.gpus, "GPU")),
                       "a plan for this machine",
                       "to execute its degrees here, on the CPU: plan run " + shell_quoted(path) +
                           " --cluster this-machine; on its GPUs: --backend cuda");
  }
  Settings changes;
  if (!on_gpus) changes.set("cluster", {kThisMachine, "plan run"});
  changes.set("stack", {kExecutingFramework, "plan run"});
  for (const char* flag : {"calibration", "precision", "cluster"}) {
    if (!on_gpus && std::string_view(flag) == "cluster") continue;
    if (const auto value = call.arguments.value(flag))
      changes.set(flag, {*value, std::string("--") + flag});
  }
  return understand(file, path, changes);
}

Error in_words_of_memory(const PlanRequest& request, const Candidate& candidate) {
  const MemoryPrediction& memory = candidate.prediction.memory;
  const auto ranks = static_cast<int>(candidate.plan.gpus());
  return input_error(
      "plan run",
      fmt::format("{} that need up to {} each", counted(ranks, "rank"), with_gib(memory.peak)),
      fmt::format("at most {} for each of them", with_gib(memory.capacity)),
      cheapest_relief(request, candidate.plan, request.usable_memory()));
}

/// What is left for a process that has another beside it to tell people what comes out.
Result<Outcome> without_a_voice(const Ended& ended) {
  if (ended.signal == 0) return Outcome{"", ended.exit_code};  // it has said why
  return environment_error("plan-run", fmt::format("killed by signal {}", ended.signal));
}

/// A run must not fail when all is computed because its results cannot be written.
Status check_destinations(const Invocation& call, const RunSettings& settings, bool leads) {
  const auto of_flag = [](const char* flag, const Status& status) -> Status {
    if (status) return status;
    Error error = status.error();
    error.where = std::string("--") + flag + ": " + error.where;
    return error;
  };
  for (const char* flag : {"report", "trace"}) {
    const auto path = call.arguments.value(flag);
    if (!path || !leads) continue;
    if (const Status ok = of_flag(flag, check_writable(*path)); !ok) return ok;
  }
  for (const auto& [flag, path] : {std::pair("export", &settings.export_to),
                                   std::pair("checkpoint-dir", &settings.checkpoint_dir)}) {
    if (path->empty()) continue;
    if (const Status ok = of_flag(flag, check_folder_writable(*path)); !ok) return ok;
  }
  return Done{};
}

/// plan-run itself, or under mpirun.
Result<Child> child_of(const RunSettings& settings, int ranks, const std::string& settings_path) {
  const std::vector<std::string> words{own_folder() + "/plan-run", settings_path};
  if (settings.launcher == "mpi") return under_mpirun(words, ranks);
  return Child{.words = words};
}

/// mpirun tells a process that a signal ended as shells do; plan-run's own codes are smaller.
constexpr int kSignals = 128;
bool killed_process(const Ended& ended) {
  return ended.signal == 0 && ended.exit_code > kSignals && ended.exit_code <= kSignals + 64;
}

/// A plan priced for where it runs.
struct Ready {
  PlanFile written;  ///< as its file says
  Asked asked;
  Candidate candidate;
  PlanFile priced;
};

/// No value: it does not fit, which was told.
Result<std::optional<Ready>> made_ready(const Invocation& call, const std::string& path,
                                        const std::string& backend) {
  Result<PlanFile> file = read_plan_file(path);
  if (!file) return file.error();
  Result<Asked> asked = for_this_machine(call, *file, path, backend);
  if (!asked) return asked.error();
  Result<Candidate> candidate = predict(asked->request);
  if (!candidate) return candidate.error();
  if (!candidate->fits) {
    complain(in_words_of_memory(asked->request, *candidate).message());
    return std::optional<Ready>();
  }
  Result<PlanFile> priced = complete_plan_file(asked->request, *candidate, asked->provenance);
  if (!priced) return priced.error();
  return std::optional<Ready>(
      Ready{*std::move(file), *std::move(asked), *std::move(candidate), *std::move(priced)});
}

/// Two predictions where the plan was made for something else.
void tell_predictions(const std::string& path, const Ready& ready) {
  const PlanFile& file = ready.written;
  if (file.stack == kExecutingFramework) return;
  complain(fmt::format("{} was made for {} with {}: {} a step; here, with {}: {}", path,
                       file.cluster, file.stack, duration(file.predicted.time.total()),
                       kExecutingFramework, duration(ready.priced.predicted.time.total())));
}

/// Runs plan-run to its end; its lines go to people and to `events`.
Result<Ended> followed(const Child& child, int events, bool tell) {
  RunProgress progress(tell);
  const Result<Ended> ended = run_child(child, [&](std::string_view line) {
    if (events >= 0) {
      const std::string whole = std::string(line) + "\n";
      [[maybe_unused]] const ssize_t told = write(events, whole.data(), whole.size());
    }
    const Result<RunEvent> event = parse_run_event(line, "plan-run");
    if (!event) return complain("plan-run said: " + std::string(line.substr(0, 200)));
    if (event->kind == RunEvent::Kind::step) {
      progress.show(step_line(event->step, event->of), event->step.step + 1 == event->of);
    } else if (event->kind == RunEvent::Kind::note || event->kind == RunEvent::Kind::checkpoint) {
      progress.say(event->text);
    }
  });
  if (ended) progress.wipe();
  return ended;
}

Result<Outcome> without_report(const Ended& ended) {
  if (ended.interrupted) {
    complain("interrupted before a step was over: there is no report");
    return Outcome{"", kInterrupted};
  }
  if (killed_process(ended)) {
    complain(fmt::format("plan-run: a process of the run was killed by signal {}",
                         ended.exit_code - kSignals));
    return Outcome{"", kPeerLost};
  }
  if (ended.signal != 0) {
    return environment_error("plan-run", fmt::format("killed by signal {}", ended.signal),
                             "without a report: perhaps the machine ran out of memory");
  }
  return Outcome{"", ended.exit_code};  // it has said why
}

/// What was tried did not fit: what would.
void add_relief(const Ready& ready, RunReport& report) {
  const auto available = report.environment.find("memory available");
  if (available == report.environment.end()) return;
  const Bytes there{std::strtod(available->second.c_str(), nullptr)};
  report.reason += "; " + cheapest_relief(ready.asked.request, ready.candidate.plan, there);
}

Result<Outcome> with_report(const Invocation& call, const Ready& ready, const RunReport& report,
                            const Ended& ended) {
  const SimulatedStep simulated = simulate_plan(ready.asked.request, ready.candidate);
  const std::string text = run_report_to_json(report);
  if (const Status written = write_named(call, "report", text); !written) return written.error();
  const Status traced = write_named(call, "trace", run_trace(report, simulated));
  if (!traced) return traced.error();
  Outcome outcome;
  const bool lost = report.end == RunReport::End::failed && killed_process(ended);
  const bool stopped = report.end == RunReport::End::interrupted && ended.interrupted;
  outcome.exit_code = lost ? kPeerLost : stopped ? kInterrupted : ended.exit_code;
  outcome.output = call.json    ? text
                   : call.quiet ? run_summary(report)
                                : run_text(report, simulated, call.style);
  return outcome;
}

}  // namespace

Result<Outcome> run_verb(const Invocation& call) {
  const std::string& path = call.arguments.words.front();
  Result<RunSettings> settings = settings_of_call(call);
  if (!settings) return settings.error();
  const Result<std::optional<Launch>> launch = launch_of_call(call, *settings);
  if (!launch) return launch.error();
  const bool leads = !*launch || (*launch)->rank == 0;
  const Result<int> events = events_of(call);
  if (!events) return events.error();
  if (const Status ok = check_destinations(call, *settings, leads); !ok) return ok.error();
  const Result<std::optional<Ready>> made = made_ready(call, path, settings->backend);
  if (!made) return made.error();
  if (!*made) return Outcome{"", kOutOfMemory};
  const Ready& ready = **made;

  const Result<Scratch> scratch = Scratch::make();
  if (!scratch) return scratch.error();
  settings->plan = scratch->file("plan.json");
  settings->report = scratch->file("report.json");
  const std::string settings_path = scratch->file("settings.json");
  const int ranks = static_cast<int>(ready.candidate.plan.gpus());
  if (*launch) {
    if (const Status fits = check_launch(**launch, ranks); !fits) return fits.error();
  }
  const Result<Child> child = child_of(*settings, ranks, settings_path);
  if (!child) return child.error();
  settings->events = child->events;
  if (const Status written = write_file(settings->plan, plan_file_to_json(ready.priced)); !written)
    return written.error();
  if (const Status written = write_file(settings_path, run_settings_to_json(*settings)); !written)
    return written.error();

  const bool tell = leads && !call.quiet && !call.json;
  if (tell) tell_predictions(path, ready);
  const Result<Ended> ended = followed(*child, *events, tell);
  if (!ended) return ended.error();
  if (!leads) return without_a_voice(*ended);
  std::error_code ignored;
  if (!std::filesystem::exists(settings->report, ignored)) return without_report(*ended);
  Result<RunReport> report = read_run_report(settings->report);
  if (!report) return report.error();
  report->plan_path = path;
  add_relief(ready, *report);
  return with_report(call, ready, *report, *ended);
}

}  // namespace echelon::cli
