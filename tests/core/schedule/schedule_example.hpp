// A small sound schedule as text, and edits that break it.
#pragma once

#include <string>
#include <string_view>

#include "core/schedule/schedule.hpp"

namespace echelon {

/// 1F1B on two ranks with two microbatches, one gradient bucket, tied embedding, clipping and a
/// gather after the step: as written by build_schedule.
inline constexpr std::string_view kSchedule = R"(echelon-schedule 1
pipeline 1f1b ranks 2 chunks 1 microbatches 2 units 1
program 0
buffer batch 64 at 0
buffer saved 4096 at 256
buffer output 1024 at 4352
buffer batch 64 at 5376
buffer saved 4096 at 5632
buffer output 1024 at 9728
buffer output_gradient 1024 at 10752
0 zero
1 load c0 m0 b64 >0
2 F c0 m0 <0 >1,2 @1
3 load c0 m1 b64 >3
4 send_f c0 m0 p1 b1024 s0 <2 @2
5 F c0 m1 <3 >4,5 @3
6 send_f c0 m1 p1 b1024 s1 <5 @5
7 recv_b c0 m0 p1 b1024 s2 >6
8 B c0 m0 <1,6,0 @7
9 recv_b c0 m1 p1 b1024 s3 >6 @8
10 B c0 m1 <4,6,3 @9
11 reduce c0 u0 b200 s5 @10
12 tied p1 b32 s6
13 norm b4 s7
14 clip @13
15 step
16 updated c0 b100 s8 @15
program 1
buffer batch 64 at 0
buffer batch 64 at 256
buffer input 1024 at 512
buffer saved 4096 at 1536
buffer input 1024 at 5632
buffer input_gradient 1024 at 6656
0 zero
1 load c0 m0 b64 >0
2 load c0 m1 b64 >1
3 recv_f c0 m0 p0 b1024 s0 >2
4 F c0 m0 <0,2 >3 @3,1
5 recv_f c0 m1 p0 b1024 s1 >4
6 B c0 m0 <3,0,2 >5
7 send_b c0 m0 p0 b1024 s2 <5 @6
8 F c0 m1 <1,4 >3 @5,2
9 B c0 m1 <3,1,4 >5 @7
10 send_b c0 m1 p0 b1024 s3 <5 @9
11 reduce c0 u0 b200 s4 @9
12 tied p0 b32 s6
13 norm b4 s7
14 clip @13
15 step
16 updated c0 b100 s9 @15
end
)";

/// The schedule with the first `from` after "program RANK" replaced. Aborts if there is none.
inline std::string edited(int rank, std::string_view from, std::string_view to,
                          std::string text = std::string(kSchedule)) {
  const std::size_t program = text.find("program " + std::to_string(rank));
  const std::size_t at = text.find(from, program);
  EXPECTS(at != std::string::npos, "no such line in the example");
  return text.replace(at, from.size(), to);
}

}  // namespace echelon
