#include "cli/flags/run_flags.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>

#include "cli/flags/this_machine.hpp"
#include "cli/flags/values.hpp"
#include "core/base/parse_quantity.hpp"
#include "core/base/text.hpp"

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
    keep(input_error(setting->where, in_quotes(setting->value), "one of " + list));
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

}  // namespace

Result<RunSettings> run_settings_of(const Settings& settings) {
  RunSettings s;
  RunFlags flags(settings);
  flags.count("steps", 1, s.steps);
  std::int64_t seed = static_cast<std::int64_t>(s.seed);
  flags.count("seed", 0, seed);
  s.seed = static_cast<std::uint64_t>(seed);
  const Setting* data = settings.find("data");
  if (data != nullptr && data->value.starts_with("synthetic"))
    flags.text("data", s.data);
  else
    flags.existing("data", "a file of tokens or of text, or synthetic:COUNT", s.data);
  flags.existing("init-from", "a folder with config.json and safetensors", s.init_from);
  flags.text("export", s.export_to);
  flags.text("checkpoint-dir", s.checkpoint_dir);
  flags.count("checkpoint-every", 1, s.checkpoint_every);
  flags.count("keep-last", 0, s.keep_last);
  flags.count("keep-every", 1, s.keep_every);
  s.async_checkpoints = settings.has("async-checkpoints");
  if (const Setting* resume = settings.find("resume"))
    s.resume = resume->value == "auto" ? Resume::automatic : Resume::yes;
  for (const char* flag :
       {"resume", "checkpoint-every", "keep-last", "keep-every", "async-checkpoints"}) {
    if (!s.checkpoint_dir.empty() || !settings.has(flag)) continue;
    flags.keep(input_error(std::string("--") + flag, "no --checkpoint-dir",
                           "--checkpoint-dir DIR, the folder of the checkpoints"));
  }
  constexpr double kMostRate = 100;
  flags.number("learning-rate", 0, kMostRate, s.learning_rate);
  s.min_lr = 0.1 * s.learning_rate;
  flags.number("min-lr", 0, kMostRate, s.min_lr);
  if (const Setting* least = settings.find("min-lr"); least && s.min_lr > s.learning_rate) {
    flags.keep(input_error(least->where,
                           fmt::format("{} is above the peak learning rate, {:g}",
                                       in_quotes(least->value), s.learning_rate),
                           "at most the peak", "--learning-rate sets the peak"));
  }
  flags.count("warmup-steps", 0, s.warmup_steps);
  flags.count("lr-decay-steps", 1, s.lr_decay_steps);
  flags.number("weight-decay", 0, 1, s.weight_decay);
  flags.number("lora-alpha", 0, 1e6, s.lora_alpha);
  if (const Setting* alpha = settings.find("lora-alpha"); alpha && s.lora_alpha == 0) {
    flags.keep(input_error(alpha->where,
                           in_quotes(alpha->value) + ", with which adapters have no effect and no "
                                                     "gradients",
                           "a number above 0, as the rank of --lora or twice that"));
  }
  flags.number("max-grad-norm", 0, 1e9, s.max_grad_norm);
  flags.count("max-skipped-steps", 0, s.max_skipped_steps);
  flags.text("flight-recorder", s.flight_recorder);
  s.decoupled = flags.choice("optimizer", {"adamw", "adam"}) == "adamw";
  s.backend = flags.choice("backend", {"cpu", "cuda"});
  s.launcher = flags.choice("launcher", {"local", "mpi", "env"});
  std::int64_t cores = 0;
  flags.count("cores", 1, cores);
  if (const Setting* asked = settings.find("cores"); asked && cores > host_facts().cores) {
    flags.keep(input_error(
        asked->where,
        fmt::format("{} of the {} processor cores of this machine", cores, host_facts().cores),
        fmt::format("at most {}", host_facts().cores)));
  }
  s.cores = static_cast<int>(std::min<std::int64_t>(cores, host_facts().cores));
  if (const Setting* timeout = settings.find("timeout")) {
    const Result<Seconds> time = parse_duration(*timeout);
    if (!time) return time.error();
    s.timeout = *time;
  }
  if (const Setting* inject = settings.find("inject")) {
    const Result<std::vector<InjectedFault>> faults = parse_faults(inject->value, inject->where);
    if (!faults) return faults.error();
    s.inject = *faults;
  }
  if (flags.error()) return *flags.error();
  return s;
}

}  // namespace echelon::cli
