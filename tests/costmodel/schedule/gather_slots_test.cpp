#include "costmodel/schedule/gather_slots.hpp"

#include <algorithm>
#include <set>

#include "costmodel/schedule/build.hpp"
#include "tests/costmodel/schedule/schedule_cases.hpp"
#include "tests/support/catch.hpp"

namespace echelon {

TEST_CASE("gathered units lie where the lowered schedule puts them") {
  for (const PipelineShape& shape : shapes(4, 3, {1, 2, 5})) {
    if (runs_both_ways(shape.kind)) continue;
    for (const int units : {1, 2, 3, 4}) {
      ScheduleSpec spec;
      spec.shape = shape;
      spec.units = units;
      spec.reduce_gradients = spec.reduce_every_microbatch = true;
      spec.gather_slots = kGatherSlots;
      const Schedule schedule = build_schedule(spec, one_second_each(shape, 50_ms));
      for (const Program& program : schedule.programs) {
        std::vector<GatherUnit> uses;
        std::vector<std::int32_t> buffers;  // of each use, the first one is the lowest number
        std::int32_t first = -1;
        for (const Instruction& i : program.instructions) {
          if (i.queue != Queue::compute || i.op == Op::release_parameters) continue;
          for (const std::int32_t buffer : i.reads) {
            if (program.buffers[static_cast<std::size_t>(buffer)].kind != BufferKind::parameters)
              continue;
            if (first < 0) first = buffer;
            uses.push_back({*i.chunk, i.unit});
            buffers.push_back(buffer);
          }
        }
        const std::vector<GatherSlot> slots = gather_slots(uses, kGatherSlots);
        INFO(name_of(shape) << ", " << units << " units");
        REQUIRE(!uses.empty());
        for (std::size_t use = 0; use < uses.size(); ++use)
          REQUIRE((slots[use].slot == 0) == (buffers[use] == first));
      }
    }
  }
}

TEST_CASE("of three slots the unit that is needed last leaves") {
  const std::vector<GatherUnit> uses{{0, 0}, {0, 1}, {0, 2}, {0, 3}, {0, 1}, {0, 0}, {0, 3}};
  std::vector<std::size_t> places;
  std::vector<bool> gathered;
  for (const GatherSlot& each : gather_slots(uses, 3)) {
    places.push_back(each.slot);
    gathered.push_back(each.gathered);
  }
  // Unit 3 takes the place of unit 0, needed after unit 1; unit 2, which has just run, stays.
  CHECK(places == std::vector<std::size_t>{0, 1, 2, 0, 1, 2, 0});
  CHECK(gathered == std::vector<bool>{true, true, true, true, false, true, false});
}

}  // namespace echelon
