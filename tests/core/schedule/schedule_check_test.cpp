// One broken schedule per kind of fault: the checker names the kind and the instruction.
#include "core/schedule/schedule_check.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "tests/core/schedule/schedule_example.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;
using Kind = ScheduleFaultKind;

namespace {

Schedule read(const std::string& text) {
  Result<Schedule> schedule = parse_schedule_text(text, "example");
  REQUIRE(schedule.ok());
  return *std::move(schedule);
}

/// Checks that the checker finds a fault of `kind` whose text contains `part`.
void finds(Kind kind, const Schedule& schedule, std::string_view part) {
  std::string all;
  bool found = false;
  for (const ScheduleFault& f : check_schedule(schedule)) {
    found = found || (f.kind == kind && f.what.find(part) != std::string::npos);
    all += std::string(name_of(f.kind)) + ": " + f.what + "\n";
  }
  INFO(all);
  CHECK(found);
}
void finds(Kind kind, const std::string& text, std::string_view part) {
  finds(kind, read(text), part);
}

/// Renumbers a rank's list after instructions were moved, and updates dependencies.
void renumber(Program& program) {
  std::vector<std::uint32_t> now(program.instructions.size());
  for (std::uint32_t at = 0; at < now.size(); ++at) now[program.instructions[at].id] = at;
  for (Instruction& i : program.instructions) {
    i.id = now[i.id];
    for (std::uint32_t& id : i.after) id = now[id];
  }
}

/// Moves one instruction of a rank to another position of its list.
Schedule moved(int rank, std::uint32_t from, std::uint32_t to) {
  Schedule s = read(std::string(kSchedule));
  auto& list = s.programs[static_cast<std::size_t>(rank)].instructions;
  const auto begin = list.begin();
  if (from < to)
    std::rotate(begin + from, begin + from + 1, begin + to + 1);
  else
    std::rotate(begin + to, begin + from, begin + from + 1);
  renumber(s.programs[static_cast<std::size_t>(rank)]);
  return s;
}

/// Removes one instruction and all dependencies on it.
Schedule without(int rank, std::uint32_t id, Schedule s = read(std::string(kSchedule))) {
  auto& list = s.programs[static_cast<std::size_t>(rank)].instructions;
  list.erase(list.begin() + id);
  for (Instruction& i : list) {
    i.id -= i.id > id ? 1 : 0;
    const auto dependencies = std::exchange(i.after, {});
    for (const std::uint32_t other : dependencies) {
      if (other != id) i.after.push_back(other - (other > id ? 1 : 0));
    }
  }
  return s;
}

}  // namespace

TEST_CASE("the example is sound") { CHECK(check_schedule(read(std::string(kSchedule))).empty()); }

TEST_CASE("every kind of fault has a unique name") {
  std::vector<std::string_view> names;
  for (int k = 0; k < kScheduleFaultKinds; ++k) names.push_back(name_of(static_cast<Kind>(k)));
  std::sort(names.begin(), names.end());
  CHECK(std::adjacent_find(names.begin(), names.end()) == names.end());
  CHECK_FALSE(std::binary_search(names.begin(), names.end(), "?"));
}

TEST_CASE("fields out of range are malformed") {
  finds(Kind::malformed, edited(0, "F c0 m0", "F c1 m0"), "chunk");
  finds(Kind::malformed, edited(0, "F c0 m1", "F c0 m2"), "microbatch");
  finds(Kind::malformed, edited(0, "F c0 m1", "F c0 m1 u1"), "unit");
  finds(Kind::malformed, edited(0, "F c0", "F on=reduce c0"), "queue");
  finds(Kind::malformed, edited(0, " s0", ""), "order of communications");
  Schedule s = read(std::string(kSchedule));
  s.programs.pop_back();
  finds(Kind::malformed, s, "one program per rank");
}

TEST_CASE("a field that is missing, or that the operation does not have, is found") {
  finds(Kind::malformed, edited(0, "5 F c0 m1", "5 F m1"), "rank 0 #5 F m1 has no chunk");
  finds(Kind::malformed, edited(0, "m0 p1 b1024 s0", "m0 b1024 s0"), "has no peer rank");
  finds(Kind::malformed, edited(0, "13 norm b4", "13 norm c0 b4"),
        "has the chunk 0; norm has none");
  finds(Kind::malformed, edited(0, "15 step", "15 step s10"), "step has none");
}

TEST_CASE("only the unit, and the microbatch of a reduction, may be there or not") {
  const Schedule sound = read(std::string(kSchedule));
  const auto malformed = [](const Schedule& s) {
    const std::vector<ScheduleFault> faults = check_schedule(s);
    return std::any_of(faults.begin(), faults.end(),
                       [](const ScheduleFault& f) { return f.kind == Kind::malformed; });
  };
  for (const Instruction& i : sound.programs[0].instructions) {
    const bool units = i.op == Op::forward || i.op == Op::backward || i.op == Op::reduce_gradients;
    for (const auto field : {&Instruction::chunk, &Instruction::microbatch, &Instruction::unit,
                             &Instruction::peer, &Instruction::sequence}) {
      const bool optional = (field == &Instruction::unit && units) ||
                            (field == &Instruction::microbatch && i.op == Op::reduce_gradients);
      Schedule s = sound;
      std::optional<std::int32_t>& value = s.programs[0].instructions[i.id].*field;
      value = value ? std::nullopt : std::optional<std::int32_t>(0);
      INFO(describe(0, i) << " becomes " << describe(0, s.programs[0].instructions[i.id]));
      CHECK(malformed(s) != optional);
    }
  }
}

TEST_CASE("a duplicate id is found") {
  finds(Kind::duplicate_id, edited(0, "3 load", "2 load"), "rank 0 #2 load");
}

TEST_CASE("a peer that is not a rank is found") {
  finds(Kind::unknown_rank, edited(0, "p1 b1024 s0", "p7 b1024 s0"),
        "rank 0 #4 send_f c0 m0 has the peer rank 7 of 2");
}

TEST_CASE("a dependency on a later instruction or on the same queue is found") {
  finds(Kind::unknown_dependency, edited(0, "<3 >4,5 @3", "<3 >4,5 @7"), "#7");
  finds(Kind::unknown_dependency, edited(0, "<3 >4,5 @3", "<3 >4,5 @2"), "#2");
}

TEST_CASE("an undeclared buffer is found") {
  finds(Kind::unknown_buffer, edited(0, "<3 >4,5", "<9 >4,5"), "buffer 9");
}

TEST_CASE("a missing forward is found") {
  finds(Kind::missing_forward, without(1, 8), "rank 1 chunk 0 microbatch 1");
}

TEST_CASE("a missing backward is found") {
  finds(Kind::missing_backward, without(1, 6), "rank 1 chunk 0 microbatch 0");
}

TEST_CASE("a forward done twice is found") {
  finds(Kind::repeated_compute, edited(0, "F c0 m1", "F c0 m0"), "is done twice");
}

TEST_CASE("a backward before its forward is found") {
  Schedule s = read(std::string(kSchedule));
  auto& list = s.programs[1].instructions;
  std::swap(list[4].op, list[6].op);
  finds(Kind::compute_order, s, "rank 1 #4 B c0 m0 comes before its forward");
}

TEST_CASE("a weight gradient without its input gradient is found") {
  finds(Kind::compute_order, edited(1, "6 B c0", "6 W c0"), "input gradient");
}

TEST_CASE("more forwards in flight than the schedule allows are found") {
  finds(Kind::too_many_in_flight, moved(1, 8, 6), "rank 1 holds 2");
}

TEST_CASE("a send without its receive is found") {
  finds(Kind::unmatched_message, without(1, 10), "rank 0 #9 recv_b c0 m1 has no matching send");
  finds(Kind::unmatched_message, without(0, 6), "has no matching send");
}

TEST_CASE("messages missing on both sides are found") {
  const Schedule s = without(1, 5, without(0, 6));
  finds(Kind::unmatched_message, s, "1 of 4 messages");
}

TEST_CASE("a message to the sending rank, or on two communicators, is found") {
  finds(Kind::unmatched_message, edited(0, "p1 b1024 s0", "p0 b1024 s0"), "its neighbour is 1");
  finds(Kind::unmatched_message, edited(0, "4 send_f c0", "4 send_f on=p2p_backward c0"),
        "is on p2p_backward");
}

TEST_CASE("a collective missing on one rank is found") {
  finds(Kind::unmatched_message, edited(1, "12 tied p0", "12 reduce c0 u0"), "tied");
}

TEST_CASE("differing bytes of a message are found") {
  finds(Kind::message_bytes, edited(1, "p0 b1024 s0", "p0 b1000 s0"), "1000");
}

TEST_CASE("receives in another order than their sends are found") {
  Schedule s = moved(1, 5, 3);
  finds(Kind::message_order, s, "send_f c0 m0 is paired with rank 1 #3 recv_f c0 m1");
}

TEST_CASE("a list that violates the order of communications is found") {
  finds(Kind::communication_order, moved(0, 7, 5), "comes after number 2");
  finds(Kind::communication_order, edited(0, "s8", "s9"), "have the same position");
  finds(Kind::communication_order, edited(0, "s0", "s10"), "two positions");
}

TEST_CASE("ranks that wait for each other are found, and the cycle is printed") {
  // Rank 0 needs its gradient before it sends the second activation; rank 1 needs that activation
  // before it sends the gradient. Both on one communicator.
  std::string text = edited(1, "7 send_b c0", "7 send_b on=p2p_forward c0");
  text = edited(0, "7 recv_b c0", "7 recv_b on=p2p_forward c0", text);
  Schedule s = read(text);
  auto& list = s.programs[0].instructions;
  std::rotate(list.begin() + 6, list.begin() + 7, list.begin() + 8);  // receive before send
  renumber(s.programs[0]);
  finds(Kind::cycle, s, "rank 0 #7 send_f c0 m1 = rank 1 #5 recv_f c0 m1 -> ");
  finds(Kind::cycle, s, "rank 0 #6 recv_b c0 m0 = rank 1 #7 send_b c0 m0 -> ");
}

TEST_CASE("data used without waiting for it is found") {
  finds(Kind::missing_dependency, edited(1, ">3 @3,1", ">3 @1"),
        "rank 1 #4 F c0 m0 does not wait for rank 1 #3 recv_f c0 m0");
  finds(Kind::missing_dependency, edited(0, "<2 @2", "<2"), "does not wait for");
}

TEST_CASE("unused data is found") {
  finds(Kind::missing_dependency, edited(0, "8 B c0 m0 <1,6,0", "8 B c0 m0 <1,0"),
        "does not read the output of recv_b");
}

TEST_CASE("a buffer refilled without waiting for its last reader is found") {
  finds(Kind::missing_dependency, edited(0, ">6 @8", ">6"),
        "rank 0 #9 recv_b c0 m1 does not wait for rank 0 #8 B c0 m0, which still uses");
}

TEST_CASE("a read of an empty buffer is found") {
  finds(Kind::read_before_write, edited(1, "4 F c0 m0 <0,2", "4 F c0 m0 <0,4"),
        "input buffer 4, which holds nothing");
}

TEST_CASE("a buffer overwritten before its last read is found") {
  std::string text = edited(1, "s1 >4", "s1 >2 @4");
  text = edited(1, "8 F c0 m1 <1,4", "8 F c0 m1 <1,2", text);
  finds(Kind::buffer_overwritten, text,
        "rank 1 #6 B c0 m0 reads input buffer 2, which holds the output of rank 1 #5 recv_f c0 m1");
}

TEST_CASE("buffers that share bytes are found") {
  finds(Kind::buffer_overlap, edited(0, "at 5376", "at 5375"), "rank 0");
}

TEST_CASE("a step before its reductions, or a missing step, is found") {
  finds(Kind::step_order, edited(0, "14 clip @13", "14 clip"), "clip");
  finds(Kind::step_order, without(0, 15), "0 optimizer steps");
  finds(Kind::step_order, edited(0, "s8 @15", "s8"), "updated");
  finds(Kind::step_order, moved(0, 15, 9), "step");
  finds(Kind::step_order, moved(0, 0, 9), "zero");
}

TEST_CASE("tied embeddings that are summed before they are reduced are found") {
  const std::string early = edited(0, "11 reduce c0 u0 b200 s5 @10\n12 tied p1 b32 s6",
                                   "11 tied p1 b32 s5 @10\n12 reduce c0 u0 b200 s6");
  finds(Kind::step_order, edited(1, "12 tied p0 b32 s6", "12 tied p0 b32 s5", early),
        "rank 0 #11 tied does not wait for rank 0 #12");
}

TEST_CASE("a reduction before the last backward, or a missing reduction, is found") {
  finds(Kind::step_order, edited(1, "s4 @9", "s4 @6"), "rank 1 #11 reduce c0 u0");
  finds(Kind::step_order, edited(0, "reduce c0 u0", "reduce c0 m0 u0"), "1 of 2 pieces");
}
