#include "core/base/units.hpp"

#include <functional>
#include <limits>
#include <type_traits>

#include "tests/support/catch.hpp"

using namespace echelon;

TEST_CASE("a decimal and a binary gigabyte are different") {
  CHECK(1_GB != 1_GiB);
  CHECK((1_GiB).in(1_B) == 1073741824.0);
  CHECK((1_GB).in(1_B) == 1e9);
  CHECK((1_GiB).in(1_MiB) == 1024.0);
}

TEST_CASE("eight bits per second are a byte per second") {
  CHECK(400_Gbps == 50_GBps);
  CHECK((8_Gbps).in(1_GBps) == 1.0);
}

TEST_CASE("bytes divided by bandwidth is time, and back") {
  const Seconds time = 50_GB / 50_GBps;
  CHECK(time == 1_s);
  CHECK(50_GBps * time == 50_GB);
  CHECK(50_GB / time == 50_GBps);
}

TEST_CASE("work divided by a rate is time") {
  CHECK(989_TFLOP / 989_TFLOPS == 1_s);
  CHECK((1_TFLOP / 1_ms).in(1_TFLOPS) == Approx(1000));
}

TEST_CASE("quantities of one dimension add, compare and divide to a ratio") {
  CHECK(1_ms + 1_ms == 2_ms);
  CHECK(3_us - 1_us > 1_us);
  CHECK(-(1_ms) < 0_s);
  CHECK(2 * 1_GiB == 2_GiB);
  CHECK(1_GiB / 2.0 == 512_MiB);
  static_assert(std::is_same_v<decltype(2_GiB / 1_GiB), double>);
  CHECK(2_GiB / 1_GiB == 2.0);
}

TEST_CASE("different dimensions do not mix") {
  static_assert(!std::is_convertible_v<double, Bytes>);
  static_assert(!std::is_convertible_v<Bytes, double>);
  static_assert(!std::is_convertible_v<Bytes, Seconds>);
  static_assert(!std::is_invocable_v<std::plus<>, Bytes, Seconds>);
  SUCCEED();
}

TEST_CASE("a quantity knows whether it is finite") {
  CHECK((1_GiB).is_finite());
  CHECK_FALSE((1_GiB / 0.0).is_finite());
  CHECK_FALSE(Seconds{std::numeric_limits<double>::quiet_NaN()}.is_finite());
  CHECK(Bytes{} == 0_B);
}
