#include <limits>
#include <string>

#include "core/json/json_io.hpp"
#include "core/run/run_settings.hpp"

namespace echelon {
namespace {

constexpr const char* kResume[] = {"no", "yes", "auto"};

}  // namespace

std::string run_settings_to_json(const RunSettings& s) {
  Json out{{"plan", s.plan},
           {"report", s.report},
           {"user_report", s.user_report},
           {"backend", s.backend},
           {"launcher", s.launcher},
           {"steps", s.steps},
           {"seed", s.seed},
           {"data", s.data},
           {"init_from", s.init_from},
           {"export_to", s.export_to},
           {"checkpoint_dir", s.checkpoint_dir},
           {"checkpoint_every", s.checkpoint_every},
           {"keep_last", s.keep_last},
           {"keep_every", s.keep_every},
           {"async_checkpoints", s.async_checkpoints},
           {"resume", kResume[static_cast<int>(s.resume)]},
           {"learning_rate", s.learning_rate},
           {"min_lr", s.min_lr},
           {"warmup_steps", s.warmup_steps},
           {"lr_decay_steps", s.lr_decay_steps},
           {"beta1", s.beta1},
           {"beta2", s.beta2},
           {"epsilon", s.epsilon},
           {"weight_decay", s.weight_decay},
           {"decoupled", s.decoupled},
           {"lora_alpha", s.lora_alpha},
           {"max_grad_norm", s.max_grad_norm},
           {"max_skipped_steps", s.max_skipped_steps},
           {"noise_every", s.noise_every},
           {"flight_recorder", s.flight_recorder},
           {"cores", s.cores},
           {"inject", to_text(s.inject)}};
  if (s.events) out["events"] = *s.events;
  if (s.timeout) out["timeout_seconds"] = s.timeout->in(kSecond);
  return out.dump(2) + "\n";
}

Result<RunSettings> parse_run_settings(std::string_view json, std::string_view where) {
  const Result<Json> root = parse_json(json, where);
  if (!root) return root.error();
  JsonReader reader(*root, std::string(where));
  constexpr std::int64_t kMany = std::int64_t{1} << 53;
  RunSettings s;
  s.plan = reader.string("plan");
  s.report = reader.string("report");
  s.user_report = reader.string("user_report");
  s.backend = reader.choice("backend", {"cpu", "cuda"});
  s.launcher = reader.choice("launcher", {"local", "mpi", "env"});
  s.steps = reader.integer("steps", 1, kMany);
  s.seed = static_cast<std::uint64_t>(reader.integer("seed", 0, kMany));
  s.data = reader.string("data");
  s.init_from = reader.string("init_from");
  s.export_to = reader.string("export_to");
  s.checkpoint_dir = reader.string("checkpoint_dir");
  s.checkpoint_every = reader.integer("checkpoint_every", 0, kMany);
  s.keep_last = reader.integer("keep_last", 0, kMany);
  s.keep_every = reader.integer("keep_every", 0, kMany);
  s.async_checkpoints = reader.boolean("async_checkpoints");
  const std::string resume = reader.choice("resume", {kResume[0], kResume[1], kResume[2]});
  for (int i = 0; i < 3; ++i) {
    if (resume == kResume[i]) s.resume = static_cast<Resume>(i);
  }
  s.learning_rate = reader.number("learning_rate", 0);
  s.min_lr = reader.number("min_lr", 0);
  s.warmup_steps = reader.integer("warmup_steps", 0, kMany);
  s.lr_decay_steps = reader.integer("lr_decay_steps", 0, kMany);
  s.beta1 = reader.number("beta1", 0, 1);
  s.beta2 = reader.number("beta2", 0, 1);
  s.epsilon = reader.number("epsilon", 0, 1);
  s.weight_decay = reader.number("weight_decay", 0);
  s.decoupled = reader.boolean("decoupled");
  s.lora_alpha = reader.number("lora_alpha", 0);
  s.max_grad_norm = reader.number("max_grad_norm", 0);
  s.max_skipped_steps = reader.integer("max_skipped_steps", 0, kMany);
  s.flight_recorder = reader.string("flight_recorder");
  s.noise_every = reader.integer("noise_every", 0, kMany);
  if (reader.has("events")) s.events = static_cast<int>(reader.integer("events", 0, 1 << 20));
  s.cores = static_cast<int>(reader.integer("cores", 0, 1 << 20));
  if (reader.has("timeout_seconds")) s.timeout = Seconds{reader.number("timeout_seconds", 0)};
  const Result<std::vector<InjectedFault>> faults =
      parse_faults(reader.string("inject"), std::string(where) + " at /inject");
  if (!faults) return faults.error();
  s.inject = *faults;
  reader.ignore({"events", "timeout_seconds"});
  if (const Status read = reader.finish(); !read) return read.error();
  return s;
}

}  // namespace echelon
