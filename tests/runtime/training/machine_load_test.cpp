// The load of a machine's cores during a measured run, from texts and numbers, not from clocks.
#include "runtime/training/machine_load.hpp"

#include <array>
#include <map>
#include <string>
#include <vector>

#include "tests/runtime/training/whole_runs.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/skip.hpp"

using namespace echelon;

namespace {

// user nice system idle iowait irq softirq steal guest guest_nice
constexpr const char* kProcStat =
    "cpu  1000 10 100 5000 50 5 5 20 7 0\n"
    "cpu0 500 5 50 2500 25 2 3 10 7 0\n"
    "cpu1 400 5 40 2400 20 3 2 10 0 0\n"
    "cpu10 100 0 10 100 5 0 0 0 0 0\n"
    "intr 12345 0 0\n";

constexpr Seconds kTick{0.01};

}  // namespace

TEST_CASE("cores are busy except when idle or waiting for disks") {
  CHECK(busy_time(kProcStat, {0}, kTick)->in(1_s) == Approx(5.70));
  CHECK(busy_time(kProcStat, {1}, kTick)->in(1_s) == Approx(4.60));
  CHECK(busy_time(kProcStat, {0, 10}, kTick)->in(1_s) == Approx(6.80));
  CHECK(!busy_time(kProcStat, {2}, kTick));
  CHECK(!busy_time(kProcStat, {}, kTick));
  CHECK(!busy_time("", {0}, kTick));
  CHECK(!busy_time("cpu0 1 2 three\n", {0}, kTick));
}

TEST_CASE("the load of other programs is the machine's load less that of the run's processes") {
  const CoreTime before{.at = 10_s, .all = 100_s, .own = 1_s, .cores = 2};
  const CoreTime after{.at = 14_s, .all = 107_s, .own = 2_s, .cores = 2};
  const ProcessUse one = process_use(before, after);
  CHECK(one.machine > 0);
  CHECK(one.all == 1.75);
  CHECK(one.own == 0.25);
  CHECK(one.cores == 2);
  const ProcessUse through = ProcessUse::from(one.numbers().data());
  CHECK(through.numbers() == one.numbers());

  // Two processes here, a rank that reports for none, and one on its own machine.
  const ProcessUse elsewhere{.machine = 7, .seconds = 4, .all = 3.5, .own = 3.25, .cores = 8};
  const std::vector<ProcessUse> all{one, one, {}, elsewhere};
  const CoreUse use = core_use(all).value();
  CHECK(use.others == 1.25);
  CHECK(use.own == 0.5);
  CHECK(use.cores == 2);
  CHECK(use.processor_time == Seconds{1 + 1 + 13});

  const std::vector<ProcessUse> none(3);
  CHECK(!core_use(none));
  CoreTime soon = before;
  soon.at += Seconds{0.05};
  CHECK(process_use(before, soon).machine == 0);
  CHECK(process_use(std::nullopt, after).machine == 0);
}

TEST_CASE("the time of this machine's cores is read from /proc/stat where it exists") {
  const auto now = core_time();
  if (!now) return;
  CHECK(now->cores >= 1);
  CHECK(now->all > Seconds{});
  CHECK(now->own > Seconds{});
}

TEST_CASE("a run's report gives the core usage of its steps and of other programs") {
  if (!core_time()) return skip("this system has no /proc/stat");
  TrainedCase c;
  c.model = small_gpt2();
  c.plan = plan_for(c.model, 1, 1, 2);
  const Ran ran = run(plan_file(c), settings_for(200));
  const std::map<std::string, std::string>& environment = ran.report.environment;
  for (const char* key : {"cores used by the run", kOtherPrograms, "processor time of a step"}) {
    INFO(key);
    CHECK(environment.count(key) == 1);
  }
}
