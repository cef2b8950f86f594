#include "report/plan_diff.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "report/json/json.hpp"
#include "report/plan_files.hpp"
#include "report/text/text.hpp"
#include "tests/core/plan/one_field_changed.hpp"
#include "tests/planner/requests.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

PlanFile plan_with_tp(int tp) {
  PlanRequest request = request_for("7b", "dgx-h100", 16);
  request.constraints.pin<&ParallelPlan::tp>(tp);
  return plan_file_of(request, predict(request).value(), {});
}

}  // namespace

TEST_CASE("compared parts sum to their last row, and parts that neither plan has are left out") {
  const PlanFile a = plan_with_tp(1);
  const PlanFile b = plan_with_tp(8);
  const std::vector<TimeDelta> rows = part_deltas(a.predicted.time, b.predicted.time);
  Seconds left;
  Seconds right;
  bool tp = false;
  for (std::size_t i = 0; i + 1 < rows.size(); ++i) {
    left += rows[i].a;
    right += rows[i].b;
    CHECK_FALSE((rows[i].a == Seconds{} && rows[i].b == Seconds{}));
    tp = tp || rows[i].name == "tp communication";  // one of the two has it
  }
  CHECK(tp);
  CHECK(rows.back().name == "step");
  CHECK(rows.back().a.in(kSecond) == Approx(left.in(kSecond)));
  CHECK(rows.back().b.in(kSecond) == Approx(right.in(kSecond)));
}

TEST_CASE("compared memory is that of the fullest stages, with the reserve") {
  const PlanFile a = plan_with_tp(1);
  const PlanFile b = plan_with_tp(8);
  const std::vector<MemoryDelta> rows = fullest_stage_deltas(a.predicted, b.predicted);
  REQUIRE(rows.size() > 3);
  CHECK(rows[rows.size() - 2].name == "total");
  CHECK(rows[rows.size() - 2].a == a.predicted.peak);
  CHECK(rows.back().name == "reserved");
  CHECK(rows.back().b == b.predicted.peak_reserved);
}

TEST_CASE("exactly the differences between two plans are named") {
  const PlanFile a = plan_with_tp(1);
  const PlanFile b = plan_with_tp(8);
  bool tp = false;
  for (const FieldDelta& row : field_deltas(a, b)) {
    CHECK(row.a != row.b);
    CHECK(row.name != "model");
    tp = tp || (row.name == "tp" && row.a == "1" && row.b == "8");
  }
  CHECK(tp);
  CHECK(field_deltas(a, a).empty());
  PlanFile offloaded = a;
  offloaded.plan.offload_optimizer = 0.5;
  REQUIRE(field_deltas(a, offloaded).size() == 1);
  CHECK(field_deltas(a, offloaded)[0].b == "50 %");
}

TEST_CASE("the faster of two plans is named, whichever side it is on") {
  PlanFile a = plan_with_tp(1);
  PlanFile b = a;
  b.predicted.tokens_per_second = 1.1 * a.predicted.tokens_per_second;
  CHECK(faster_of(a, b).starts_with("B is 10.0 % faster"));
  CHECK(faster_of(b, a).starts_with("A is 10.0 % faster"));
  CHECK(faster_of(a, a).starts_with("A and B are equally fast"));
  PlanFile many = b;
  many.gpus = 4 * a.gpus;
  CHECK(faster_of(a, b).find("per GPU") == std::string::npos);
  CHECK(faster_of(a, many).find("; per GPU ") != std::string::npos);
}

TEST_CASE("of different jobs neither plan is called faster, and the difference is named") {
  const PlanFile a = plan_with_tp(1);
  PlanFile b = a;
  b.predicted.tokens_per_second = 40 * a.predicted.tokens_per_second;
  b.job.sequence = 2 * a.job.sequence;
  b.job.global_batch = a.job.global_batch + 1;
  const std::string words = faster_of(a, b);
  CHECK(words.starts_with("A and B are plans of different jobs (sequence "));
  CHECK(words.find(", global batch ") != std::string::npos);
  CHECK(words.find(" tokens/s for A, ") != std::string::npos);
  CHECK(words.find("faster") == std::string::npos);
  b = a;
  b.model.name = "another";
  CHECK(faster_of(a, b).find("(model ") != std::string::npos);
}

TEST_CASE("values that round to the same text are shown in full") {
  PlanFile a = plan_with_tp(1);
  a.plan.bucket = Bytes{25e6};
  PlanFile b = a;
  b.plan.bucket = Bytes{25e6 + 1};
  const std::vector<FieldDelta> rows = field_deltas(a, b);
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].a == "25000000");
  CHECK(rows[0].b == "25000001");
}

TEST_CASE("plans that differ in any one field are never the same") {
  PlanFile a = plan_with_tp(1);
  a.plan = plain_plan();
  for (const PlanField& field : plan_fields()) {
    CAPTURE(field.key);
    PlanFile b = a;
    b.plan = with_changed(field, a.plan);
    const std::vector<FieldDelta> rows = field_deltas(a, b);
    const auto row = std::ranges::find(rows, field.label, &FieldDelta::name);
    REQUIRE(row != rows.end());
    CHECK(row->a != row->b);
    const std::string text =
        compare_text({"a.json", a, {}}, {"b.json", b, {}}, TextStyle{100, false, false});
    CHECK(text.find("The plans are the same") == std::string::npos);
    const std::string json = compare_json({"a.json", a, {}}, {"b.json", b, {}});
    const std::size_t list = json.find("\"differing\"");
    REQUIRE(list != std::string::npos);
    CHECK(json.find('"' + std::string(field.key) + '"', list) < json.find(']', list));
  }
}
