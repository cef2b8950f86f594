#include "gui/app/session_io.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

#include "cli/flags/constraints.hpp"
#include "cli/flags/table.hpp"
#include "core/base/did_you_mean.hpp"
#include "core/json/json_io.hpp"
#include "core/model/model_io.hpp"
#include "core/plan/plan_file.hpp"
#include "core/version.hpp"
#include "gui/session/flag_names.hpp"

namespace echelon::gui {

namespace {

constexpr const char* kFormat = "echelon-session";
/// 1 calls the request "question" and has the old names of flags; 1 and 2 pin no plan.
constexpr std::int64_t kSessionSchema = 3;
constexpr const char* kPlanFormat = "echelon-plan";
constexpr const char* kReportFormat = "echelon-run";

/// The present name of a flag that may have had another when the session was saved.
std::string current_spelling(const std::string& key) {
  const cli::Flag* flag = cli::find_spelling(key);
  return flag != nullptr ? std::string(flag->name) : key;
}

Json flags_to_json(const cli::Settings& settings) {
  Json out = Json::object();
  for (const auto& [flag, setting] : settings.all()) out[flag] = setting.value;
  return out;
}

/// Reads an object of flags, all of which belong to `groups`.
Status read_flags(const Json& object, unsigned groups, const std::string& place,
                  cli::Settings& out) {
  if (!object.is_object()) return input_error(place, "not an object", "flags and their values");
  std::vector<std::string> known;
  for (const cli::Flag& flag : cli::flags()) {
    if ((flag.groups & groups) != 0) known.emplace_back(flag.name);
  }
  for (const auto& [key, value] : object.items()) {
    const std::string where = place + "/" + key.substr(0, 60);
    const std::string name = current_spelling(key);
    const bool gpus_of_plan = name == "gpus" && groups == cli::kLayout;
    if (!gpus_of_plan && std::find(known.begin(), known.end(), name) == known.end()) {
      return input_error(where, "unknown key", "a flag's name", did_you_mean(name, known));
    }
    if (!value.is_string()) return input_error(where, value.dump().substr(0, 40), "a string");
    out.set(name, {value.get<std::string>(), "--" + name});
  }
  return Done{};
}

Status read_locks(const Json& list, const std::string& place, Query& query) {
  if (!list.is_array()) return input_error(place, "not a list", "names of flags");
  for (const Json& entry : list) {
    const std::string name = entry.is_string() ? current_spelling(entry.get<std::string>()) : "";
    if (!query.plan.has(name)) {
      return input_error(place, entry.dump().substr(0, 40), "a flag of /plan");
    }
    query.locked.insert(name);
  }
  return Done{};
}

Status read_request_and_plan(const Json& request, const Json& plan, const std::string& request_at,
                             const std::string& plan_at, Query& query) {
  if (const Status read = read_flags(request, cli::kJob | cli::kSearch | cli::kSearchAlone,
                                     request_at, query.request);
      !read) {
    return read;
  }
  return read_flags(plan, cli::kLayout, plan_at, query.plan);
}

/// The pinned plan, or null.
Result<std::optional<Query>> read_pinned(const Json& object, const std::string& where) {
  if (object.is_null()) return std::optional<Query>{};
  JsonReader reader(object, where, "/pinned");
  const Json* request = reader.member("request");
  const Json* plan = reader.member("plan");
  if (request == nullptr || plan == nullptr) {
    reader.fail("plan", "no request or no plan", "both, as the window writes them");
  }
  if (const Status read = reader.finish(); !read) return read.error();
  Query query;
  query.follows_best = false;
  if (const Status read = read_request_and_plan(*request, *plan, where + " at /pinned/request",
                                                where + " at /pinned/plan", query);
      !read) {
    return read.error();
  }
  return std::optional(std::move(query));
}

}  // namespace

std::string session_to_json(const Session& session) {
  const Query& query = session.query;
  const Json pinned = session.pinned ? Json{{"request", flags_to_json(session.pinned->request)},
                                            {"plan", flags_to_json(session.pinned->plan)}}
                                     : Json();
  const Json root{{"format", kFormat},
                  {"schema", kSessionSchema},
                  {"version", version()},
                  {"request", flags_to_json(query.request)},
                  {"plan", flags_to_json(query.plan)},
                  {"locked", query.locked},
                  {"follows_best", query.follows_best},
                  {"pinned", pinned}};
  return root.dump(2) + "\n";
}

Result<Session> parse_session(std::string_view json, std::string_view where_view) {
  const std::string where(where_view);
  const Result<Json> root = parse_json(json, where);
  if (!root) return root.error();
  if (!root->is_object() || !root->contains("format") || (*root)["format"] != kFormat) {
    return input_error(where, "not a session", "a file saved by the window (Ctrl+S)");
  }
  JsonReader reader(*root, where);
  reader.ignore({"format", "version"});
  const std::int64_t schema = reader.integer("schema", 1, kSessionSchema);
  const char* const request_key = schema == 1 ? "question" : "request";
  const Json* request = reader.member(request_key);
  const Json* plan = reader.member("plan");
  const Json* locked = reader.member("locked");
  const Json* pinned = schema < 3 ? nullptr : reader.member("pinned");
  Session session;
  Query& query = session.query;
  query.follows_best = reader.boolean("follows_best");
  for (const auto& [key, member] :
       {std::pair(request_key, request), std::pair("plan", plan), std::pair("locked", locked)}) {
    if (member == nullptr) {
      reader.fail(key, std::string("the key '") + key + "' is missing", "as the window writes it");
    }
  }
  if (const Status read = reader.finish(); !read) return read.error();
  if (const Status read = read_request_and_plan(*request, *plan, where + " at /" + request_key,
                                                where + " at /plan", query);
      !read) {
    return read.error();
  }
  if (const Status read = read_locks(*locked, where + " at /locked", query); !read) {
    return read.error();
  }
  if (pinned != nullptr) {
    Result<std::optional<Query>> read = read_pinned(*pinned, where);
    if (!read) return read.error();
    session.pinned = *std::move(read);
  }
  return session;
}

Result<Session> read_session(const std::string& path) {
  constexpr std::int64_t kMaxBytes = std::int64_t{1} << 20;
  const Result<std::string> text = read_file(path, kMaxBytes);
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

Result<Query> query_of_plan_file(const std::string& path) {
  const Result<PlanFile> file = read_plan_file(path);
  if (!file) return file.error();
  Query query;
  const auto name = [&](const char* flag, std::string value) {
    query.request.set(flag, {std::move(value), std::string("--") + flag});
  };
  const Result<ModelSpec> known = load_model(file->model.name);
  name("model", known && *known == file->model ? file->model.name : path);
  name("cluster", file->cluster);
  name("gpus", std::to_string(file->gpus));
  name(kFrameworkFlag, file->framework);
  name("seq", std::to_string(file->job.sequence));
  name("global-batch", std::to_string(file->job.global_batch));
  name("precision", file->job.precision.name);
  if (!file->job.flash_attention) name("flash-attention", "false");
  if (file->job.layer_code != LayerCode::fused) {
    name("layer-code", std::string(name_of(file->job.layer_code)));
  }
  if (file->job.expert_imbalance > 1) {
    name("expert-imbalance", fmt::format("{}", file->job.expert_imbalance));
  }
  if (file->job.documents) name("document-lengths", file->job.documents->text);
  if (file->job.adapters) name("lora", file->job.adapters->text());
  if (file->job.quantized_weights) name("quantized-weights", file->job.quantized_weights->text());
  if (!file->calibration_path.empty()) name("calibration", file->calibration_path);
  if (file->job.token_budget) {
    name(kTrainTokensFlag, std::to_string(static_cast<std::int64_t>(*file->job.token_budget)));
  }
  if (file->max_memory) {
    name("max-memory", std::to_string(static_cast<std::int64_t>(file->max_memory->in(kByte))));
  }
  query.plan = cli::settings_of(file->plan);
  query.follows_best = false;
  return query;
}

Result<Session> session_of_file(const std::string& path, const cli::Settings& changes) {
  Session session;
  if (kind_of(path) == FileKind::session) {
    Result<Session> read = read_session(path);
    if (!read) return read.error();
    session = *std::move(read);
  } else {
    Result<Query> read = query_of_plan_file(path);
    if (!read) return read.error();
    session.query = *std::move(read);
  }
  Query& query = session.query;
  const Query other = query_of(changes);
  for (const auto& [flag, setting] : other.request.all()) query.request.set(flag, setting);
  if (other.request.has("model")) {
    for (const char* flag : kPerLayerFlags) query.plan.erase(flag);
  }
  if (other.request.has("gpus")) {
    query.plan.erase("dp");
    query.plan.erase(kZeroGroupFlag);
  }
  const Result<PlanConstraints> pinned = cli::constraints_of(query.plan);
  const Result<PlanConstraints> changed = cli::constraints_of(other.plan);
  if (!pinned) return pinned.error();
  if (!changed) return changed.error();
  query.plan = cli::settings_of(cli::changed_by(*pinned, *changed));
  return session;
}

}  // namespace echelon::gui
