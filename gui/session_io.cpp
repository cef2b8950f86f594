#include "gui/session_io.hpp"

#include <algorithm>
#include <set>
#include <vector>

#include "cli/constraints.hpp"
#include "cli/flags.hpp"
#include "core/base/did_you_mean.hpp"
#include "core/json/json_io.hpp"
#include "core/model/model_io.hpp"
#include "core/plan/plan_file.hpp"
#include "core/version.hpp"

namespace echelon::gui {

namespace {

constexpr const char* kFormat = "echelon-session";
constexpr std::int64_t kSessionSchema = 1;
constexpr const char* kPlanFormat = "echelon-plan";
constexpr const char* kReportFormat = "echelon-run";

Json flags_to_json(const cli::Settings& settings) {
  Json out = Json::object();
  for (const auto& [flag, setting] : settings.all()) out[flag] = setting.value;
  return out;
}

/// Of an object of flags, all of them in `groups`.
Status read_flags(const Json& object, unsigned groups, const std::string& place,
                  cli::Settings& out) {
  if (!object.is_object()) return input_error(place, "not an object", "flags and their values");
  std::vector<std::string> known;
  for (const cli::Flag& flag : cli::flags()) {
    if ((flag.groups & groups) != 0) known.emplace_back(flag.name);
  }
  for (const auto& [name, value] : object.items()) {
    const std::string where = place + "/" + name.substr(0, 60);
    const bool gpus_of_plan = name == "gpus" && groups == cli::kLayout;
    if (!gpus_of_plan && std::find(known.begin(), known.end(), name) == known.end()) {
      return input_error(where, "unknown key", "a flag's name", did_you_mean(name, known));
    }
    if (!value.is_string()) return input_error(where, value.dump().substr(0, 40), "a text");
    out.set(name, {value.get<std::string>(), "--" + name});
  }
  return Done{};
}

Status read_locks(const Json& list, const std::string& place, Sheet& sheet) {
  if (!list.is_array()) return input_error(place, "not a list", "names of flags");
  for (const Json& entry : list) {
    const bool known = entry.is_string() && sheet.plan.has(entry.get<std::string>());
    if (!known) return input_error(place, entry.dump().substr(0, 40), "a flag of /plan");
    sheet.locked.insert(entry.get<std::string>());
  }
  return Done{};
}

}  // namespace

std::string session_to_json(const Sheet& sheet) {
  const Json root{{"format", kFormat},
                  {"schema", kSessionSchema},
                  {"version", version()},
                  {"question", flags_to_json(sheet.question)},
                  {"plan", flags_to_json(sheet.plan)},
                  {"locked", sheet.locked},
                  {"follows_best", sheet.follows_best}};
  return root.dump(2) + "\n";
}

Result<Sheet> parse_session(std::string_view json, std::string_view where_view) {
  const std::string where(where_view);
  const Result<Json> root = parse_json(json, where);
  if (!root) return root.error();
  if (!root->is_object() || !root->contains("format") || (*root)["format"] != kFormat) {
    return input_error(where, "not a session", "what the window saves with Ctrl+S");
  }
  JsonReader reader(*root, where);
  reader.ignore({"format", "version"});
  reader.integer("schema", kSessionSchema, kSessionSchema);
  const Json* question = reader.member("question");
  const Json* plan = reader.member("plan");
  const Json* locked = reader.member("locked");
  Sheet sheet;
  sheet.follows_best = reader.boolean("follows_best");
  for (const auto& [key, member] :
       {std::pair("question", question), std::pair("plan", plan), std::pair("locked", locked)}) {
    if (member == nullptr) {
      reader.fail(key, std::string("the key '") + key + "' is missing", "as the window writes it");
    }
  }
  if (const Status read = reader.finish(); !read) return read.error();
  if (const Status read = read_flags(*question, cli::kJob | cli::kSearch | cli::kSearchAlone,
                                     where + " at /question", sheet.question);
      !read) {
    return read.error();
  }
  if (const Status read = read_flags(*plan, cli::kLayout, where + " at /plan", sheet.plan); !read) {
    return read.error();
  }
  if (const Status read = read_locks(*locked, where + " at /locked", sheet); !read) {
    return read.error();
  }
  return sheet;
}

Result<Sheet> read_session(const std::string& path) {
  constexpr std::int64_t kLongest = std::int64_t{1} << 20;
  const Result<std::string> text = read_file(path, kLongest);
  if (!text) return text.error();
  return parse_session(*text, path);
}

Status check_json(const std::string& path) {
  const Result<Json> root = read_json(path);
  if (!root) return root.error();
  return Done{};
}

FileKind kind_of(const std::string& path) {
  const Result<Json> root = read_json(path);
  if (!root || !root->is_object() || !root->contains("format")) return FileKind::other;
  const Json& format = (*root)["format"];
  if (format == kFormat) return FileKind::session;
  if (format == kPlanFormat) return FileKind::plan;
  if (format == kReportFormat) return FileKind::run_report;
  return FileKind::other;
}

Result<Sheet> sheet_of_plan_file(const std::string& path) {
  const Result<PlanFile> file = read_plan_file(path);
  if (!file) return file.error();
  Sheet sheet;
  const auto name = [&](const char* flag, std::string value) {
    sheet.question.set(flag, {std::move(value), std::string("--") + flag});
  };
  const Result<ModelSpec> known = load_model(file->model.name);
  name("model", known && *known == file->model ? file->model.name : path);
  name("cluster", file->cluster);
  name("gpus", std::to_string(file->gpus));
  name("stack", file->stack);
  name("seq", std::to_string(file->job.sequence));
  name("global-batch", std::to_string(file->job.global_batch));
  name("precision", file->job.precision.name);
  if (!file->job.flash_attention) name("flash-attention", "false");
  if (!file->calibration_path.empty()) name("calibration", file->calibration_path);
  if (file->job.token_budget) {
    name("tokens", std::to_string(static_cast<std::int64_t>(*file->job.token_budget)));
  }
  if (file->max_memory) {
    name("max-memory", std::to_string(static_cast<std::int64_t>(file->max_memory->in(kByte))));
  }
  sheet.plan = cli::settings_of(file->plan);
  sheet.follows_best = false;
  return sheet;
}

Result<Sheet> sheet_of_file(const std::string& path, const cli::Settings& changes) {
  Result<Sheet> sheet =
      kind_of(path) == FileKind::session ? read_session(path) : sheet_of_plan_file(path);
  if (!sheet) return sheet;
  const Sheet other = sheet_of(changes);
  for (const auto& [flag, setting] : other.question.all()) sheet->question.set(flag, setting);
  if (other.question.has("model")) {
    for (const char* flag : {"layers-per-stage", "recompute-layers", "selective-layers"}) {
      sheet->plan.erase(flag);
    }
  }
  if (other.question.has("gpus")) {
    sheet->plan.erase("dp");
    sheet->plan.erase("shard-group");
  }
  const Result<PlanConstraints> pinned = cli::constraints_of(sheet->plan);
  const Result<PlanConstraints> changed = cli::constraints_of(other.plan);
  if (!pinned) return pinned.error();
  if (!changed) return changed.error();
  sheet->plan = cli::settings_of(cli::changed_by(*pinned, *changed));
  return sheet;
}

}  // namespace echelon::gui
