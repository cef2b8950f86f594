#include "runtime/comm/ordered_reduction.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/support/catch.hpp"

namespace echelon {
namespace {

template <class T>
std::vector<T> reduced(std::vector<std::vector<T>> members, Element element, Reduction how) {
  std::vector<const void*> in;
  std::vector<void*> out;
  for (auto& member : members) {
    in.push_back(member.data());
    out.push_back(member.data());
  }
  reduce_in_order(in, 0, out, 0, static_cast<std::int64_t>(members[0].size()), element, how);
  for (std::size_t member = 1; member < members.size(); ++member) {
    for (std::size_t i = 0; i < members[0].size(); ++i) {
      CHECK(std::memcmp(&members[member][i], &members[0][i], sizeof(T)) == 0);
    }
  }
  return members[0];
}

TEST_CASE("sums are computed in the order of the members") {
  CHECK(reduced<float>({{1e8F}, {1}, {-1e8F}}, Element::f32, Reduction::sum)[0] == 0);
  CHECK(reduced<float>({{1e8F}, {-1e8F}, {1}}, Element::f32, Reduction::sum)[0] == 1);
  CHECK(reduced<double>({{1e17}, {-1e17}, {1}}, Element::f64, Reduction::sum)[0] == 1);
}

TEST_CASE("bf16 is accumulated in fp32 and rounded once") {
  // 256 + 1 rounds to 256 in bf16, whose neighbours are 2 apart there.
  const std::vector<Bfloat16> large{Bfloat16(256)};
  const std::vector<Bfloat16> small{Bfloat16(1)};
  const auto sum =
      reduced<Bfloat16>({large, small, small, small, small}, Element::bf16, Reduction::sum);
  CHECK(static_cast<float>(sum[0]) == 260);
}

TEST_CASE("a sum of one member is the member, including minus zero") {
  CHECK(std::signbit(reduced<float>({{-0.0F}}, Element::f32, Reduction::sum)[0]));
  CHECK(std::signbit(reduced<float>({{-0.0F}, {-0.0F}}, Element::f32, Reduction::sum)[0]));
}

TEST_CASE("a NaN of any member is the maximum") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(std::isnan(reduced<double>({{nan}, {1}, {2}}, Element::f64, Reduction::max)[0]));
  CHECK(std::isnan(reduced<double>({{1}, {2}, {nan}}, Element::f64, Reduction::max)[0]));
  CHECK(reduced<double>({{1}, {3}, {2}}, Element::f64, Reduction::max)[0] == 3);
}

TEST_CASE("i32 sums wrap around") {
  const std::int32_t largest = std::numeric_limits<std::int32_t>::max();
  CHECK(reduced<std::int32_t>({{largest}, {1}}, Element::i32, Reduction::sum)[0] ==
        std::numeric_limits<std::int32_t>::min());
}

}  // namespace
}  // namespace echelon
