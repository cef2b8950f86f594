// State of the window: edits, undo, search, sessions. No widgets.
#include "gui/session/planning_session.hpp"

#include <QSignalSpy>
#include <QTest>

#include <optional>
#include <vector>

#include "gui/app/session_io.hpp"
#include "gui/session/flag_names.hpp"
#include "planner/search/optimize.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/text.hpp"

using namespace echelon;
using echelon::test::lacks;
using gui::PlanningSession;

namespace {

cli::Settings settings(std::initializer_list<std::pair<const char*, const char*>> flags) {
  cli::Settings out;
  for (const auto& [flag, value] : flags) out.set(flag, {value, std::string("--") + flag});
  return out;
}

/// A request that is searched in milliseconds.
gui::Query small_query() {
  return gui::query_of(settings({{"model", "gpt2"}, {"gpus", "8"}, {"global-batch", "64"}}));
}

void wait_for_search(PlanningSession& session) {
  REQUIRE(QTest::qWaitFor([&] { return !session.searching(); }, 60'000));
}

std::string value(const cli::Settings& settings, const char* flag) {
  const cli::Setting* setting = settings.find(flag);
  return setting != nullptr ? setting->value : "";
}

}  // namespace

TEST_CASE("a request is searched, and its plan is the winner of the same search by flags") {
  PlanningSession session;
  session.reset(small_query());
  wait_for_search(session);
  REQUIRE(session.plan());
  const Result<cli::ResolvedRequest> resolved =
      cli::resolve(settings({{"model", "gpt2"}, {"gpus", "8"}, {"global-batch", "64"}}));
  const SearchResult choice = optimize(resolved->request).value();
  CHECK(session.plan()->candidate.plan == choice.report.winner()->plan);
  CHECK(session.best() != nullptr);
  // The second search lists more than the five of the command line, and the front.
  CHECK(session.space()->report.candidates.size() > 5);
  CHECK(!session.space()->report.pareto.empty());
  CHECK(session.space()->resolved.request.top == 5);
}

TEST_CASE("an edit of the plan is priced at once, exactly as by plan predict") {
  PlanningSession session;
  session.reset(small_query());
  wait_for_search(session);
  session.set_plan_flag("tp", "2");
  REQUIRE_FALSE(session.plan_error());
  CHECK(session.plan()->candidate.plan.tp == 2);
  CHECK(session.plan()->candidate.plan.dp == 4);
  CHECK_FALSE(session.query().follows_best);
  cli::Settings flags = session.query().request;
  for (const auto& [flag, setting] : session.query().plan.all()) flags.set(flag, setting);
  const Candidate priced = predict(cli::resolve(flags)->request).value();
  CHECK(priced.plan == session.plan()->candidate.plan);
  CHECK(priced.prediction.time.step == session.plan()->candidate.prediction.time.step);
}

TEST_CASE("an illegal plan keeps the last legal one and reports the wrong flag") {
  PlanningSession session;
  session.reset(small_query());
  wait_for_search(session);
  const ParallelPlan before = session.plan()->candidate.plan;
  session.set_plan_flag("tp", "5");
  REQUIRE(session.plan_error());
  CHECK(session.last_changed() == "tp");
  CHECK(value(session.query().plan, "tp") == "5");
  CHECK(session.plan()->candidate.plan == before);
  session.set_plan_flag("tp", "many");
  REQUIRE(session.plan_error());
  CHECK(cli::flag_of(*session.plan_error()) == "tp");
  session.set_plan_flag("tp", "2");
  CHECK_FALSE(session.plan_error());
}

TEST_CASE("an invalid request is an error at its flag and stops the search") {
  PlanningSession session;
  session.reset(small_query());
  session.set_request_flag("gpus", "13");
  REQUIRE(session.request_error());
  CHECK(cli::flag_of(*session.request_error()) == "gpus");
  CHECK_FALSE(session.searching());
  CHECK(session.best() == nullptr);
  session.set_request_flag("gpus", "16");
  CHECK_FALSE(session.request_error());
  wait_for_search(session);
  CHECK(session.plan()->candidate.plan.gpus() == 16);
}

TEST_CASE("undo and redo cover request and plan, and one drag is one step") {
  PlanningSession session;
  session.reset(small_query());
  wait_for_search(session);
  const ParallelPlan best = session.plan()->candidate.plan;
  CHECK_FALSE(session.can_undo());
  session.set_plan_flag("microbatch", "2");
  session.set_plan_flag("microbatch", "4");
  session.set_plan_flag("microbatch", "8");
  session.end_edit();
  session.set_plan_flag("microbatch", "1");
  session.undo();
  CHECK(session.plan()->candidate.plan.microbatch == 8);
  session.undo();
  CHECK(session.plan()->candidate.plan == best);
  CHECK(session.query().follows_best);
  CHECK_FALSE(session.can_undo());
  session.redo();
  CHECK(session.plan()->candidate.plan.microbatch == 8);
  session.set_request_flag("seq", "512");
  CHECK_FALSE(session.can_redo());
  CHECK(session.resolved()->request.job.sequence == 512);
  session.undo();
  CHECK(session.resolved()->request.job.sequence == 1024);
}

TEST_CASE("a lock holds in the next search and in the consequences of other edits") {
  PlanningSession session;
  session.reset(small_query());
  wait_for_search(session);
  session.set_plan_flag("tp", "4");
  session.lock("tp", true);
  session.follow_best();
  wait_for_search(session);
  REQUIRE(session.space());
  for (const Candidate& each : session.space()->report.candidates) CHECK(each.plan.tp == 4);
  CHECK(session.plan()->candidate.plan.tp == 4);
  session.lock("tp", false);
  wait_for_search(session);
  bool other = false;
  for (const Candidate& each : session.space()->report.candidates) other |= each.plan.tp != 4;
  CHECK(other);
}

TEST_CASE("a newer request makes the previous search stale") {
  PlanningSession session;
  session.reset(gui::query_of(settings({{"model", "7b"}, {"gpus", "64"}})));
  session.search_now();
  QSignalSpy found(&session, &PlanningSession::space_changed);
  session.reset(small_query());
  session.search_now();
  wait_for_search(session);
  REQUIRE(found.count() >= 1);
  CHECK(session.space()->resolved.request.model.name == "gpt2");
  CHECK(found.count() == 2);  // the first and the complete result of the newer request only
}

TEST_CASE("a cancelled search reports nothing more") {
  PlanningSession session;
  session.reset(gui::query_of(settings({{"model", "gpt3-175b"}, {"gpus", "1024"}})));
  session.search_now();
  CHECK(session.searching());
  QSignalSpy ended(&session, &PlanningSession::search_ended);
  QSignalSpy found(&session, &PlanningSession::space_changed);
  session.cancel_search();
  CHECK_FALSE(session.searching());
  CHECK(ended.count() >= 1);
  QTest::qWait(50);
  CHECK(found.count() == 0);
}

TEST_CASE("with an upper limit of GPUs the plan keeps the number that was found") {
  PlanningSession session;
  session.reset(gui::query_of(settings(
      {{"model", "gpt2"}, {"max-gpus", "16"}, {"objective", "cost"}, {"global-batch", "64"}})));
  wait_for_search(session);
  REQUIRE(session.plan());
  const std::int64_t gpus = session.plan()->candidate.plan.gpus();
  CHECK(value(session.query().plan, "gpus") == std::to_string(gpus));
  session.set_plan_flag("microbatch", "1");
  CHECK_FALSE(session.plan_error());
  CHECK(session.plan()->candidate.plan.gpus() == gpus);
  CHECK(lacks(session.command_of_plan(), "--gpus " + std::to_string(gpus)) == "");
  CHECK(lacks(session.command_of_plan(), "--max-gpus") != "");
}

TEST_CASE("a search over states of precision prices plans with the recipe that it chose") {
  const cli::Settings flags = settings({{"model", "gpt2"},
                                        {"gpus", "8"},
                                        {"global-batch", "64"},
                                        {"precision", "bf16:any"},
                                        {"prefer", "fastest"}});
  const SearchResult choice = optimize(cli::resolve_search(flags)->request).value();
  const std::string chosen = choice.request.job.precision.name;
  REQUIRE(chosen != "bf16:adam-fp32-master");  // the default
  PlanningSession session;
  session.reset(gui::query_of(flags));
  CHECK_FALSE(session.request_error());
  wait_for_search(session);
  REQUIRE(session.plan());
  const auto recipe_of_plan = [&] { return session.plan()->resolved.request.job.precision.name; };
  CHECK(recipe_of_plan() == chosen);
  CHECK(session.plan()->candidate.plan == choice.report.winner()->plan);
  session.set_plan_flag("tp", "2");
  CHECK_FALSE(session.plan_error());
  CHECK(recipe_of_plan() == chosen);
  CHECK(lacks(session.command_of_plan(), "--precision " + chosen) == "");
  CHECK(lacks(session.command_of_search(), "--precision bf16:any") == "");
  // A plan that was edited during the search gets the recipe once that is known.
  PlanningSession edited;
  edited.reset(gui::query_of(flags));
  edited.set_plan_flag("tp", "2");
  wait_for_search(edited);
  REQUIRE(edited.plan());
  CHECK(edited.plan()->resolved.request.job.precision.name == chosen);
}

TEST_CASE("a search uses no axis or technique that the request forbids or does not allow") {
  PlanningSession session;
  session.reset(small_query());
  session.set_request_flag("forbid", "zero");
  wait_for_search(session);
  REQUIRE(session.space());
  for (const Candidate& each : session.space()->report.candidates) {
    CHECK(each.plan.zero == 0);
  }
  session.set_request_flag("forbid", "");
  session.set_request_flag("allow", "pp");
  wait_for_search(session);
  REQUIRE(session.plan());
  CHECK(session.plan()->candidate.plan.pp == 8);
  // A lock on what is forbidden is reported, not ignored.
  session.set_request_flag("allow", "");
  session.set_plan_flag("tp", "4");
  session.lock("tp", true);
  session.set_request_flag("forbid", "tp");
  REQUIRE(session.request_error());
  CHECK(lacks(session.request_error()->message(), "--forbid") == "");
  session.lock("tp", false);
  CHECK_FALSE(session.request_error());
}

TEST_CASE("of two flags that exclude each other the one set last holds") {
  PlanningSession session;
  gui::Query query = small_query();
  query.request.erase("global-batch");
  query.request.set("global-batch-tokens", {"65536", "--global-batch-tokens"});
  session.reset(query);
  session.set_request_flag("global-batch", "32");
  session.set_request_flag("max-gpus", "4");
  CHECK_FALSE(session.request_error());
  CHECK_FALSE(session.query().request.has("global-batch-tokens"));
  CHECK_FALSE(session.query().request.has("gpus"));
  session.set_request_flag("gpus", "2");
  CHECK_FALSE(session.query().request.has("max-gpus"));
  session.undo();
  CHECK(value(session.query().request, "max-gpus") == "4");
}

TEST_CASE("a plan of the scaling curve is loaded with its number of GPUs and the same batch") {
  PlanningSession session;
  session.reset(gui::query_of(settings({{"model", "gpt2"}, {"gpus", "8"}})));
  wait_for_search(session);
  const std::int64_t batch = session.plan()->resolved.request.job.global_batch;
  PlanRequest two = session.plan()->resolved.request;
  two.cluster = *two.cluster.resized(2);
  const Candidate best = *optimize(two)->report.winner();
  session.load_scaled(2, best);
  CHECK_FALSE(session.plan_error());
  CHECK(session.plan()->candidate.plan == best.plan);
  CHECK(session.plan()->resolved.request.job.global_batch == batch);
  CHECK(value(session.query().request, "gpus") == "2");
  session.undo();
  CHECK(value(session.query().request, "gpus") == "8");
  CHECK(session.query().follows_best);
}

TEST_CASE("a number of GPUs that is not a number is an error of the plan") {
  PlanningSession session;
  gui::Query query = small_query();
  query.plan.set("gpus", {"many", "--gpus"});
  query.follows_best = false;
  session.reset(query);
  REQUIRE(session.plan_error());
  CHECK(lacks(session.plan_error()->message(), "'many' is not a number") == "");
}

TEST_CASE("the command line of a plan is short, and gives the same plan") {
  PlanningSession session;
  session.reset(small_query());
  wait_for_search(session);
  session.set_plan_flag("tp", "2");
  const std::string command = session.command_of_plan();
  CHECK(command.starts_with("plan predict --model gpt2 --gpus 8 --global-batch 64 --tp 2"));
  CHECK(lacks(command, "--dp") != "");
  CHECK(lacks(command, "--layers-per-stage") != "");
  CHECK(session.command_of_search() == "plan --model gpt2 --gpus 8 --global-batch 64");
}

TEST_CASE("a session is read back unchanged") {
  PlanningSession session;
  session.reset(small_query());
  wait_for_search(session);
  session.set_plan_flag("tp", "4");
  session.lock("tp", true);
  std::vector<std::optional<gui::Query>> all(2);
  all[1] = gui::query_of_plan(session.query().request, *session.plan());
  for (const std::optional<gui::Query>& pinned : all) {
    const std::string text = gui::session_to_json({session.query(), pinned});
    const Result<gui::Session> back = gui::parse_session(text, "s.json");
    REQUIRE(back.ok());
    CHECK(back->query == session.query());
    CHECK(back->pinned == pinned);
    CHECK(gui::session_to_json(*back) == text);
  }
}

TEST_CASE("an invalid session is rejected with its location") {
  const auto message = [](const std::string& text) {
    const Result<gui::Session> session = gui::parse_session(text, "s.json");
    return session ? std::string("read") : session.error().message();
  };
  const std::string head = R"({"format":"echelon-session","schema":2,"version":"x",)";
  const std::string good =
      head + R"("request":{"gpus":"8"},"plan":{"tp":"2"},"locked":["tp"],"follows_best":true})";
  CHECK(message(good) == "read");
  CHECK(lacks(message("{"), "s.json") == "");
  CHECK(lacks(message(R"({"format":"echelon-plan"})"), "not a session") == "");
  CHECK(lacks(message(R"({"format":"echelon-session","schema":4})"), "/schema") == "");
  CHECK(lacks(message(head + R"("plan":{},"locked":[],"follows_best":true})"), "request") == "");
  CHECK(lacks(message(head + R"("request":{"gpu":"8"},"plan":{},"locked":[],)"
                             R"("follows_best":true})"),
              "did you mean 'gpus'") == "");
  CHECK(lacks(message(head + R"("request":{"tp":"8"},"plan":{},"locked":[],)"
                             R"("follows_best":true})"),
              "/request/tp") == "");
  CHECK(lacks(message(head + R"("request":{"gpus":8},"plan":{},"locked":[],)"
                             R"("follows_best":true})"),
              "/request/gpus") == "");
  CHECK(lacks(message(head + R"("request":{},"plan":{},"locked":["tp"],"follows_best":true})"),
              "/locked") == "");
  CHECK(lacks(message(head + R"("request":{},"plan":{},"locked":[],"follows_best":1})"),
              "/follows_best") == "");
  CHECK(lacks(message(head + R"("request":{},"plan":{},"locked":[],"follows_best":true,"a":1})"),
              "'a'") == "");
}

TEST_CASE("an invalid pinned plan of a session is rejected with its location") {
  const auto message = [](const std::string& pinned) {
    const Result<gui::Session> session = gui::parse_session(
        R"({"format":"echelon-session","schema":3,"version":"x","request":{"gpus":"8"},)"
        R"("plan":{"tp":"2"},"locked":[],"follows_best":true,"pinned":)" +
            pinned + "}",
        "s.json");
    return session ? std::string("read") : session.error().message();
  };
  CHECK(message("null") == "read");
  CHECK(message(R"({"request":{"model":"gpt2"},"plan":{"tp":"2"}})") == "read");
  CHECK(lacks(message("7"), "/pinned") == "");
  CHECK(lacks(message(R"({"plan":{"tp":"2"}})"), "/pinned") == "");
  CHECK(lacks(message(R"({"request":{},"plan":{"tpp":"2"}})"), "/pinned/plan/tpp") == "");
  CHECK(lacks(message(R"({"request":{"tp":"2"},"plan":{}})"), "/pinned/request/tp") == "");
}

TEST_CASE("sessions of schema 1 and with earlier spellings of flags still open") {
  const auto read = [](const std::string& schema_and_request, const std::string& zero_group) {
    return gui::parse_session(R"({"format":"echelon-session",)" + schema_and_request +
                                  R"(,"plan":{")" + zero_group + R"(":"4"},"locked":[")" +
                                  zero_group + R"("],"follows_best":false})",
                              "s.json");
  };
  const Result<gui::Session> current =
      read(R"("schema":2,"request":{"model":"gpt2","framework":"fsdp2"})", "zero-group-size");
  REQUIRE(current.ok());
  CHECK(value(current->query.request, "model") == "gpt2");
  CHECK(value(current->query.request, gui::kFrameworkFlag) == "fsdp2");
  CHECK(value(current->query.plan, gui::kZeroGroupFlag) == "4");
  CHECK(current->query.locked.contains(gui::kZeroGroupFlag));
  const Result<gui::Session> earlier =
      read(R"("schema":1,"question":{"model":"gpt2","framework":"fsdp2"})", "zero-group-size");
  REQUIRE(earlier.ok());
  CHECK(*earlier == *current);
}

TEST_CASE("invalid values in a session are reported when they are priced") {
  PlanningSession session;
  gui::Query query = small_query();
  query.plan.set("tp", {"../../x", "--tp"});
  query.locked.insert("tp");
  session.reset(query);
  REQUIRE(session.plan_error());
  CHECK(cli::flag_of(*session.plan_error()) == "tp");
}
