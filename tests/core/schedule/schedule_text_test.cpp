#include <cstdint>

#include "core/schedule/schedule_check.hpp"
#include "tests/core/schedule/schedule_example.hpp"
#include "tests/fuzz/mutate.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

std::string error_of(const std::string& text) {
  const Result<Schedule> result = parse_schedule_text(text, "s");
  return result.ok() ? "accepted" : result.error().message();
}

}  // namespace

TEST_CASE("a schedule's text is unchanged after reading and writing") {
  const Result<Schedule> schedule = parse_schedule_text(kSchedule, "s");
  REQUIRE(schedule.ok());
  CHECK(to_text(*schedule) == kSchedule);
  CHECK(schedule->programs.size() == 2);
  const Instruction& send = schedule->programs[0].instructions[4];
  CHECK(send.op == Op::send_activation);
  CHECK(send.queue == Queue::p2p_forward);
  CHECK(send.peer == 1);
  CHECK(send.bytes == 1024);
  CHECK(describe(0, send) == "rank 0 #4 send_f c0 m0");
}

TEST_CASE("an instruction may run on a queue other than its default") {
  const std::string text = edited(0, "7 recv_b c0", "7 recv_b on=p2p_forward c0");
  const Result<Schedule> schedule = parse_schedule_text(text, "s");
  REQUIRE(schedule.ok());
  CHECK(schedule->programs[0].instructions[7].queue == Queue::p2p_forward);
  CHECK(to_text(*schedule) == text);
}

TEST_CASE("errors in a schedule's text give the line, the text found and the text expected") {
  CHECK(error_of("") == "s line 1: found the end of the line; expected 'echelon-schedule 1'");
  CHECK(error_of(edited(0, "5 F c0", "5 G c0")) ==
        "s line 16: found 'G c0 m1 <3 >4,5 @3'; expected an instruction, such as F, B, send_f");
  CHECK(error_of(edited(0, "m1 <3", "m01 <3")) ==
        "s line 16: found '01 <3 >4,5 @3'; expected a whole number from 0 to 2147483647");
  CHECK(error_of(edited(0, "m1 <3", "m-1 <3")).find("line 16") != std::string::npos);
  CHECK(error_of(edited(0, "b64 >0", "b99999999999999999999 >0")).find("line 12") !=
        std::string::npos);
  CHECK(error_of(edited(0, "b64 >0", "b0 >0")).find("from 1") != std::string::npos);
  CHECK(error_of(edited(0, "buffer batch", "buffer bench")).find("kind of buffer") !=
        std::string::npos);
  CHECK(error_of(edited(0, "0 zero", "0 zero ")) ==
        "s line 11: found ' '; expected the end of the line");
  CHECK(error_of(edited(0, ">1,2 ", ">1,2,3,4 ")).find("at most 3 numbers") != std::string::npos);
  CHECK(error_of(edited(0, "0 zero\n", "0 zero\nbuffer saved 1 at 0\n"))
            .find("buffers before instructions") != std::string::npos);
}

TEST_CASE("a schedule's text has exactly one spelling") {
  CHECK(error_of(edited(0, "2 F c0", "2 F on=compute c0")).find("a queue other than") !=
        std::string::npos);
  CHECK(error_of(edited(0, "program 0", "program 1")).find("order of their ranks") !=
        std::string::npos);
  const std::string_view whole = kSchedule;
  const std::string first(whole.substr(0, whole.find("program 1")));
  CHECK(error_of(first + "end\n").find("one program per rank") != std::string::npos);
  CHECK(error_of(edited(0, "F c0 m0", "F m0 c0")).find("the end of the line") != std::string::npos);
}

TEST_CASE("a truncated or extended text is refused") {
  const std::string text(kSchedule);
  CHECK(error_of(text.substr(0, text.size() - 1)).find("a complete line") != std::string::npos);
  CHECK(error_of(text.substr(0, text.size() - 4)).find("'end' as the last") != std::string::npos);
  CHECK(error_of(text + "end\n").find("nothing after 'end'") != std::string::npos);
}

TEST_CASE("large numbers in the header use no memory and are checked") {
  const std::string text =
      "echelon-schedule 1\npipeline gpipe ranks 1 chunks 2147483647 microbatches 2147483647 "
      "units 2147483647\nprogram 0\n0 F c0 m0\nend\n";
  const Result<Schedule> schedule = parse_schedule_text(text, "s");
  REQUIRE(schedule.ok());
  const std::vector<ScheduleFault> faults = check_schedule(*schedule);
  REQUIRE_FALSE(faults.empty());
  CHECK(error_of("echelon-schedule 1\npipeline gpipe ranks 2147483647 chunks 1 microbatches 1 "
                 "units 1\nprogram 0\nend\n")
            .find("one program per rank") != std::string::npos);
}

TEST_CASE(
    "any bytes are refused or written back unchanged, and the checker accepts every schedule "
    "read") {
  int accepted = 0;
  for (std::uint64_t seed = 0; seed < 20000; ++seed) {
    Numbers numbers(seed);
    const std::string text = fuzz::mutated(std::string(kSchedule), "", numbers);
    const Result<Schedule> schedule = parse_schedule_text(text, "s");
    if (!schedule.ok()) continue;
    ++accepted;
    if (to_text(*schedule) != text) FAIL("another text: " << text);
    const std::vector<ScheduleFault> faults = check_schedule(*schedule);
    // Only sizes and offsets of buffers, and bytes of local instructions, may change freely.
    if (faults.empty() && schedule->programs.size() != 2) FAIL("sound: " << text);
  }
  CHECK(accepted > 500);
}
