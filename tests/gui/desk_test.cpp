// What the window works on: edits, undo, search, sessions. No widgets.
#include "gui/desk.hpp"

#include <QSignalSpy>
#include <QTest>

#include "gui/session_io.hpp"
#include "planner/objective.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/text.hpp"

using namespace echelon;
using echelon::test::lacks;
using gui::Desk;

namespace {

cli::Settings settings(std::initializer_list<std::pair<const char*, const char*>> flags) {
  cli::Settings out;
  for (const auto& [flag, value] : flags) out.set(flag, {value, std::string("--") + flag});
  return out;
}

/// A model that is searched in some milliseconds.
gui::Sheet small_question() {
  return gui::sheet_of(settings({{"model", "gpt2"}, {"gpus", "8"}, {"global-batch", "64"}}));
}

void wait_for_search(Desk& desk) {
  REQUIRE(QTest::qWaitFor([&] { return !desk.searching(); }, 60'000));
}

std::string value(const cli::Settings& settings, const char* flag) {
  const cli::Setting* setting = settings.find(flag);
  return setting != nullptr ? setting->value : "";
}

}  // namespace

TEST_CASE("a question is searched, and its plan is the winner of the same search by flags") {
  Desk desk;
  desk.open(small_question());
  wait_for_search(desk);
  REQUIRE(desk.plan());
  const Result<cli::Asked> asked =
      cli::understand(settings({{"model", "gpt2"}, {"gpus", "8"}, {"global-batch", "64"}}));
  const SearchResult choice = optimize(asked->request).value();
  CHECK(desk.plan()->candidate.plan == choice.report.winner()->plan);
  CHECK(desk.best() != nullptr);
  // The second search lists more than the five of the command line, and the front.
  CHECK(desk.space()->report.candidates.size() > 5);
  CHECK(!desk.space()->report.pareto.empty());
  CHECK(desk.space()->asked.request.top == 5);
}

TEST_CASE("an edit of the plan is priced at once, exactly as plan predict prices it") {
  Desk desk;
  desk.open(small_question());
  wait_for_search(desk);
  desk.change("tp", "2");
  REQUIRE_FALSE(desk.plan_error());
  CHECK(desk.plan()->candidate.plan.tp == 2);
  CHECK(desk.plan()->candidate.plan.dp == 4);
  CHECK_FALSE(desk.sheet().follows_best);
  cli::Settings flags = desk.sheet().question;
  for (const auto& [flag, setting] : desk.sheet().plan.all()) flags.set(flag, setting);
  const Candidate priced = predict(cli::understand(flags)->request).value();
  CHECK(priced.plan == desk.plan()->candidate.plan);
  CHECK(priced.prediction.time.step == desk.plan()->candidate.prediction.time.step);
}

TEST_CASE("an illegal plan keeps the last legal one and says which flag is wrong") {
  Desk desk;
  desk.open(small_question());
  wait_for_search(desk);
  const ParallelPlan before = desk.plan()->candidate.plan;
  desk.change("tp", "5");
  REQUIRE(desk.plan_error());
  CHECK(desk.last_changed() == "tp");
  CHECK(value(desk.sheet().plan, "tp") == "5");
  CHECK(desk.plan()->candidate.plan == before);
  desk.change("tp", "many");
  REQUIRE(desk.plan_error());
  CHECK(cli::flag_of(*desk.plan_error()) == "tp");
  desk.change("tp", "2");
  CHECK_FALSE(desk.plan_error());
}

TEST_CASE("a wrong question is an error at its flag and stops the search") {
  Desk desk;
  desk.open(small_question());
  desk.ask("gpus", "13");
  REQUIRE(desk.question_error());
  CHECK(cli::flag_of(*desk.question_error()) == "gpus");
  CHECK_FALSE(desk.searching());
  CHECK(desk.best() == nullptr);
  desk.ask("gpus", "16");
  CHECK_FALSE(desk.question_error());
  wait_for_search(desk);
  CHECK(desk.plan()->candidate.plan.gpus() == 16);
}

TEST_CASE("undo and redo go over questions and plans, and one drag is one step") {
  Desk desk;
  desk.open(small_question());
  wait_for_search(desk);
  const ParallelPlan best = desk.plan()->candidate.plan;
  CHECK_FALSE(desk.can_undo());
  desk.change("microbatch", "2");
  desk.change("microbatch", "4");
  desk.change("microbatch", "8");
  desk.seal();
  desk.change("microbatch", "1");
  desk.undo();
  CHECK(desk.plan()->candidate.plan.microbatch == 8);
  desk.undo();
  CHECK(desk.plan()->candidate.plan == best);
  CHECK(desk.sheet().follows_best);
  CHECK_FALSE(desk.can_undo());
  desk.redo();
  CHECK(desk.plan()->candidate.plan.microbatch == 8);
  desk.ask("seq", "512");
  CHECK_FALSE(desk.can_redo());
  CHECK(desk.asked()->request.job.sequence == 512);
  desk.undo();
  CHECK(desk.asked()->request.job.sequence == 1024);
}

TEST_CASE("a lock holds in the next search and in what follows from other edits") {
  Desk desk;
  desk.open(small_question());
  wait_for_search(desk);
  desk.change("tp", "4");
  desk.lock("tp", true);
  desk.take_best();
  wait_for_search(desk);
  REQUIRE(desk.space());
  for (const Candidate& each : desk.space()->report.candidates) CHECK(each.plan.tp == 4);
  CHECK(desk.plan()->candidate.plan.tp == 4);
  desk.lock("tp", false);
  wait_for_search(desk);
  bool other = false;
  for (const Candidate& each : desk.space()->report.candidates) other |= each.plan.tp != 4;
  CHECK(other);
}

TEST_CASE("a newer question makes the search before it stale") {
  Desk desk;
  desk.open(gui::sheet_of(settings({{"model", "7b"}, {"gpus", "64"}})));
  desk.search_now();
  QSignalSpy found(&desk, &Desk::space_found);
  desk.open(small_question());
  desk.search_now();
  wait_for_search(desk);
  REQUIRE(found.count() >= 1);
  CHECK(desk.space()->asked.request.model.name == "gpt2");
  CHECK(found.count() == 2);  // the quick answer and the whole one of the newer question alone
}

TEST_CASE("a search that is cancelled says nothing more") {
  Desk desk;
  desk.open(gui::sheet_of(settings({{"model", "gpt3-175b"}, {"gpus", "1024"}})));
  desk.search_now();
  CHECK(desk.searching());
  QSignalSpy ended(&desk, &Desk::search_ended);
  QSignalSpy found(&desk, &Desk::space_found);
  desk.cancel_search();
  CHECK_FALSE(desk.searching());
  CHECK(ended.count() >= 1);
  QTest::qWait(50);
  CHECK(found.count() == 0);
}

TEST_CASE("an open number of GPUs is searched, and the plan keeps the one that was found") {
  Desk desk;
  desk.open(gui::sheet_of(settings(
      {{"model", "gpt2"}, {"gpus-at-most", "16"}, {"objective", "cost"}, {"global-batch", "64"}})));
  wait_for_search(desk);
  REQUIRE(desk.plan());
  const std::int64_t gpus = desk.plan()->candidate.plan.gpus();
  CHECK(value(desk.sheet().plan, "gpus") == std::to_string(gpus));
  desk.change("microbatch", "1");
  CHECK_FALSE(desk.plan_error());
  CHECK(desk.plan()->candidate.plan.gpus() == gpus);
  CHECK(lacks(desk.command_of_plan(), "--gpus " + std::to_string(gpus)) == "");
  CHECK(lacks(desk.command_of_plan(), "--gpus-at-most") != "");
}

TEST_CASE("the command line of a plan is short, and gives the same plan") {
  Desk desk;
  desk.open(small_question());
  wait_for_search(desk);
  desk.change("tp", "2");
  const std::string command = desk.command_of_plan();
  CHECK(command.starts_with("plan predict --model gpt2 --gpus 8 --global-batch 64 --tp 2"));
  CHECK(lacks(command, "--dp") != "");
  CHECK(lacks(command, "--layers-per-stage") != "");
  CHECK(desk.command_of_search() == "plan --model gpt2 --gpus 8 --global-batch 64");
}

TEST_CASE("a session is read back as it was written") {
  Desk desk;
  desk.open(small_question());
  wait_for_search(desk);
  desk.change("tp", "4");
  desk.lock("tp", true);
  const std::string text = gui::session_to_json(desk.sheet());
  const Result<gui::Sheet> back = gui::parse_session(text, "s.json");
  REQUIRE(back.ok());
  CHECK(*back == desk.sheet());
  CHECK(gui::session_to_json(*back) == text);
}

TEST_CASE("a session that is wrong is refused with its place") {
  const auto message = [](const std::string& text) {
    const Result<gui::Sheet> sheet = gui::parse_session(text, "s.json");
    return sheet ? std::string("read") : sheet.error().message();
  };
  const std::string head = R"({"format":"echelon-session","schema":1,"version":"x",)";
  const std::string good =
      head + R"("question":{"gpus":"8"},"plan":{"tp":"2"},"locked":["tp"],"follows_best":true})";
  CHECK(message(good) == "read");
  CHECK(lacks(message("{"), "s.json") == "");
  CHECK(lacks(message(R"({"format":"echelon-plan"})"), "not a session") == "");
  CHECK(lacks(message(R"({"format":"echelon-session","schema":2})"), "/schema") == "");
  CHECK(lacks(message(head + R"("plan":{},"locked":[],"follows_best":true})"), "question") == "");
  CHECK(lacks(message(head + R"("question":{"gpu":"8"},"plan":{},"locked":[],)"
                             R"("follows_best":true})"),
              "did you mean 'gpus'") == "");
  CHECK(lacks(message(head + R"("question":{"tp":"8"},"plan":{},"locked":[],)"
                             R"("follows_best":true})"),
              "/question/tp") == "");
  CHECK(lacks(message(head + R"("question":{"gpus":8},"plan":{},"locked":[],)"
                             R"("follows_best":true})"),
              "/question/gpus") == "");
  CHECK(lacks(message(head + R"("question":{},"plan":{},"locked":["tp"],"follows_best":true})"),
              "/locked") == "");
  CHECK(lacks(message(head + R"("question":{},"plan":{},"locked":[],"follows_best":1})"),
              "/follows_best") == "");
  CHECK(lacks(message(head + R"("question":{},"plan":{},"locked":[],"follows_best":true,"a":1})"),
              "'a'") == "");
}

TEST_CASE("text in a session cannot leave it: what it means is for pricing to say") {
  Desk desk;
  gui::Sheet sheet = small_question();
  sheet.plan.set("tp", {"../../x", "--tp"});
  sheet.locked.insert("tp");
  desk.open(sheet);
  REQUIRE(desk.plan_error());
  CHECK(cli::flag_of(*desk.plan_error()) == "tp");
}
