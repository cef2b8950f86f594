#include "core/run/run_goodput_io.hpp"

namespace echelon {

namespace {

constexpr int kStartsSchema = 1;
constexpr std::int64_t kMostOfRuns = std::int64_t{1} << 53;

}  // namespace

Json goodput_json(const MeasuredGoodput& goodput) {
  return Json{{"checkpoints", goodput.checkpoints},
              {"checkpoint_bytes", static_cast<std::int64_t>(goodput.checkpoint.in(kByte))},
              {"checkpoint_seconds", goodput.write.in(kSecond)},
              {"checkpoint_stall_seconds", goodput.stall.in(kSecond)},
              {"starts", goodput.starts},
              {"failures", goodput.failures},
              {"running_seconds", goodput.running.in(kSecond)},
              {"restarts", goodput.restarts},
              {"restart_seconds", goodput.restart.in(kSecond)}};
}

Status read_goodput(const Json& object, const std::string& where, MeasuredGoodput& goodput) {
  JsonReader reader(object, where, "/goodput");
  goodput.checkpoints = reader.integer("checkpoints", 0, kMostOfRuns);
  goodput.checkpoint = Bytes{reader.number("checkpoint_bytes", 0)};
  goodput.write = Seconds{reader.number("checkpoint_seconds", 0)};
  goodput.stall = Seconds{reader.number("checkpoint_stall_seconds", 0)};
  goodput.starts = reader.integer("starts", 0, kMostOfRuns);
  goodput.failures = reader.integer("failures", 0, kMostOfRuns);
  goodput.running = Seconds{reader.number("running_seconds", 0)};
  goodput.restarts = reader.integer("restarts", 0, kMostOfRuns);
  goodput.restart = Seconds{reader.number("restart_seconds", 0)};
  return reader.finish();
}

std::string run_starts_to_json(const std::vector<RunStart>& starts) {
  Json list = Json::array();
  for (const RunStart& start : starts) {
    Json each{{"began", start.began}, {"last_seen", start.last_seen}, {"end", start.end}};
    if (start.computes) each["computes"] = *start.computes;
    list.push_back(std::move(each));
  }
  return Json{{"schema", kStartsSchema}, {"starts", std::move(list)}}.dump(1) + "\n";
}

Result<std::vector<RunStart>> parse_run_starts(std::string_view json, std::string_view where_view) {
  const std::string where(where_view);
  const Result<Json> root = parse_json(json, where);
  if (!root) return root.error();
  JsonReader reader(*root, where);
  (void)reader.integer("schema", kStartsSchema, kStartsSchema);
  const Json* list = reader.member("starts");
  if (const Status read = reader.finish(); !read) return read.error();
  if (list == nullptr || !list->is_array())
    return input_error(where + " at /starts", "not a list", "the starts of a training");
  std::vector<RunStart> out;
  for (std::size_t i = 0; i < list->size(); ++i) {
    JsonReader each((*list)[i], where, "/starts/" + std::to_string(i));
    RunStart start;
    start.began = each.number("began", 0);
    start.last_seen = each.number("last_seen", 0);
    start.end = each.string("end");
    if (each.has("computes")) start.computes = each.number("computes", 0);
    if (const Status read = each.finish(); !read) return read.error();
    out.push_back(std::move(start));
  }
  return out;
}

}  // namespace echelon
