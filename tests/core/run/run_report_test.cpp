#include "core/run/run_report.hpp"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "core/run/run_event.hpp"
#include "tests/core/plan/any_plan_file.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;
using Json = nlohmann::ordered_json;

namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
/// Possible losses and gradient norms of diverging runs.
constexpr double kFigures[] = {kInfinite, -kInfinite, std::numeric_limits<double>::quiet_NaN(),
                               3.77e31,   1e308,      -2.5};

RunReport any_report(std::uint64_t seed) {
  Numbers draw(seed);
  RunReport r;
  r.plan_path = "plan.json";
  r.plan = any_plan_file(draw);
  r.schedule_hash = r.executed_hash = std::string(32, 'a');
  r.ranks = 1 + draw.upto(8);
  r.end = static_cast<RunReport::End>(draw.upto(2));
  r.reason = draw.coin() ? "" : "Ctrl-C";
  for (int i = draw.upto(3); i > 0; --i) {
    RunStep step;
    step.step = i;
    step.loss = any_number(draw);
    step.seconds = Seconds{any_number(draw)};
    step.gradient_norm = kFigures[static_cast<std::size_t>(draw.upto(5))];
    if (draw.coin()) step.loss = kFigures[static_cast<std::size_t>(draw.upto(5))];
    if (draw.coin()) step.notes = {"loss spike"};
    r.steps.push_back(step);
    r.spans.push_back({i, 7, Seconds{0.25}, Seconds{0.5}});
  }
  if (draw.coin()) {
    r.measured = r.plan.predicted;
    r.measured->evidence = Evidence::measured;
    r.measured->time.compute = 2 * r.plan.predicted.time.compute;
  }
  r.process_peak = 3_GiB;
  r.noise = {.estimates = 4, .window = 0, .batch = 0, .low = 0, .high = 0};
  if (draw.coin())
    r.noise = {.estimates = 60, .window = 30, .batch = 17.5, .low = 9, .high = kInfinite};
  if (draw.coin()) {
    r.goodput = {.checkpoints = 3,
                 .checkpoint = 4_GiB,
                 .write = Seconds{any_number(draw)},
                 .stall = Seconds{0.25},
                 .starts = 4,
                 .failures = 2,
                 .running = Seconds{300},
                 .restarts = 1,
                 .restart = Seconds{7.5}};
  }
  r.advice = {"more of it"};
  r.environment["cpu"] = "some \"cpu\"";
  return r;
}

}  // namespace

TEST_CASE("a run report is unchanged after writing and reading") {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const std::string text = run_report_to_json(any_report(seed));
    const Result<RunReport> read = parse_run_report(text, "r.json");
    REQUIRE(read.ok());
    REQUIRE(run_report_to_json(*read) == text);
  }
}

TEST_CASE("numbers that are not finite, or huge, can be written in reports and events") {
  RunReport report = any_report(1);
  report.noise = {.estimates = 60, .window = 30, .batch = kInfinite, .low = 9, .high = kInfinite};
  report.steps.clear();
  for (const double figure : kFigures) {
    RunStep step;
    step.loss = step.gradient_norm = step.tokens_per_second = figure;
    report.steps.push_back(step);
    RunEvent event;
    event.kind = RunEvent::Kind::step;
    event.step = step;
    const Result<RunEvent> read = parse_run_event(to_line(event), "events");
    REQUIRE(read.ok());
    CHECK(to_line(*read) == to_line(event));
  }
  const std::string text = run_report_to_json(report);
  const Json root = Json::parse(text);
  CHECK(root["steps"][0]["loss"] == "inf");
  CHECK(root["steps"][1]["grad_norm"] == "-inf");
  CHECK(root["steps"][2]["tokens_per_second"] == "nan");
  CHECK(root["steps"][3]["grad_norm"] == 3.77e31);
  CHECK(root["gradient_noise"]["high"] == "inf");
  const Result<RunReport> read = parse_run_report(text, "r.json");
  REQUIRE(read.ok());
  CHECK(read->steps[0].loss == kInfinite);
  CHECK(read->steps[1].loss == -kInfinite);
  CHECK(std::isnan(read->steps[2].loss));
  CHECK(read->steps[3].gradient_norm == 3.77e31);
  CHECK(read->noise == report.noise);
  CHECK(run_report_to_json(*read) == text);
  Json bad = root;
  bad["steps"][0]["loss"] = "infinite";
  const Result<RunReport> refused = parse_run_report(bad.dump(), "r.json");
  REQUIRE(!refused.ok());
  CHECK(refused.error().message() ==
        "r.json at /steps/0/loss: the string \"infinite\"; expected a number, \"inf\", \"-inf\" or "
        "\"nan\"");
}

TEST_CASE("with too few estimates of the gradient noise only their count is reported") {
  RunReport report = any_report(2);
  report.noise = {.estimates = 4, .window = 0, .batch = 0, .low = 0, .high = 0};
  const Json noise = Json::parse(run_report_to_json(report))["gradient_noise"];
  CHECK(noise == Json{{"estimates", 4}, {"needed", 30}});
}

TEST_CASE("the error of a part is predicted / measured - 1") {
  std::uint64_t seed = 0;
  while (!any_report(seed).measured) ++seed;
  const Json root = Json::parse(run_report_to_json(any_report(seed)));
  CHECK(root["error"]["time"]["compute_seconds"].get<double>() == Approx(-0.5));
  CHECK(root["error"]["time"]["optimizer_seconds"].is_null());  // nothing measured
  CHECK(root["error"]["memory"]["peak_bytes"] == 0.0);
}

TEST_CASE("anything but a run report is refused with the position of the error") {
  const auto message = [](const Json& root) {
    const Result<RunReport> read = parse_run_report(root.dump(), "r.json");
    REQUIRE(!read.ok());
    return read.error().message();
  };
  const Json good = Json::parse(run_report_to_json(any_report(3)));
  CHECK(message(Json::object()).starts_with("r.json: not a run report"));
  Json bad = good;
  bad["schema"] = 1;
  CHECK(message(bad).starts_with("r.json at /schema: schema 1; expected schema 2"));
  bad = good;
  bad["spans"] = {1};
  CHECK(message(bad).starts_with("r.json at /spans"));
  bad = good;
  bad["steps"] = {{{"step", -1}}};
  CHECK(message(bad).starts_with("r.json at /steps/0/step"));
  bad = good;
  bad["plan"]["request"]["gpus"] = 123456;
  CHECK(message(bad).find("damaged or edited") != std::string::npos);
  for (const auto& [key, value] : good.items()) {
    if (key == "error" || key == "predicted" || key == "measured" || key == "advice") continue;
    if (key == "rank_times" || key == "checkpoint_copy_bytes") continue;  // of later versions
    bad = good;
    bad.erase(key);
    CHECK(!message(bad).empty());
  }
}

TEST_CASE("events of a run are single lines and are unchanged after writing and reading") {
  RunEvent step;
  step.kind = RunEvent::Kind::step;
  step.of = 20;
  step.step.step = 3;
  step.step.loss = 4.25;
  step.step.notes = {"loss spike:\n no"};
  RunEvent note;
  note.text = "a line\nbreak";
  for (const RunEvent& event : {step, note}) {
    const std::string line = to_line(event);
    CHECK(line.find('\n') == line.size() - 1);
    const Result<RunEvent> read = parse_run_event(line, "events");
    REQUIRE(read.ok());
    CHECK(*read == event);
  }
  CHECK(!parse_run_event("{\"event\": \"setp\"}", "events").ok());
}
