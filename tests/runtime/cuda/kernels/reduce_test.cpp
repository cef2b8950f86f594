#include <deque>
#include <limits>

#include "runtime/comm/ordered_reduction.hpp"
#include "runtime/cuda/kernels/kernels.hpp"
#include "tests/runtime/comm/collectives.hpp"
#include "tests/runtime/cuda/kernels/kernel_runs.hpp"
#include "tests/runtime/cuda/kernels/memory.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

using device::Memory;

/// The memory of some members, on the host and on the device. `shift`: bytes beyond alignment.
struct Members {
  Members(int count, std::int64_t elements, Element element, std::uint64_t seed,
          std::size_t shift = 0) {
    for (int member = 0; member < count; ++member) {
      host.push_back(numbers_of(member, elements, element, seed));
      device.emplace_back(host.back(), shift);
    }
    for (int member = 0; member < count; ++member) {
      const auto slot = static_cast<std::size_t>(member);
      in.push_back(host[slot].data());
      out.push_back(host[slot].data());
      device_in.push_back(device[slot].data());
      device_out.push_back(device[slot].data());
    }
  }
  void check() const {
    for (std::size_t member = 0; member < host.size(); ++member) {
      const bool same = device[member].content() == host[member];
      CHECK(same);
    }
  }

  std::vector<Raw> host;
  std::deque<Memory<std::byte>> device;
  std::vector<const void*> in, device_in;
  std::vector<void*> out, device_out;
};

void check_in_place(int count, std::int64_t elements, Element element, Reduction how,
                    std::size_t shift) {
  CAPTURE(count, elements, name_of(element), static_cast<int>(how), shift);
  Members all(count, elements, element, 7, shift);
  reduce_in_order(all.in, 0, all.out, 0, elements, element, how);
  cuda::reduce_in_order(nullptr, all.device_in, 0, all.device_out, 0, elements, element, how);
  all.check();
}

TEST_CASE("CUDA reductions over members give the host's bits, in place, at awkward sizes") {
  for (const Element element : kElements) {
    for (const Reduction how : {Reduction::sum, Reduction::max}) {
      for (const std::int64_t elements : {0, 1, 3, 4, 8, 257, 4099}) {
        check_in_place(3, elements, element, how, 0);
      }
      check_in_place(1, 100, element, how, 0);
      check_in_place(8, 100, element, how, 0);
      check_in_place(5, 100, element, how, static_cast<std::size_t>(bytes_of(element)));
      check_in_place(cuda::kMaxMembers, 9, element, how, 0);
    }
  }
}

TEST_CASE("CUDA reductions read a part of each member and write it to some members") {
  for (const Element element : kElements) {
    for (const std::int64_t count : {32, 37}) {
      CAPTURE(name_of(element), count);
      Members all(4, 4 * count, element, 8);
      for (std::size_t part = 0; part < 4; ++part) {
        const auto first = static_cast<std::int64_t>(part) * count;
        const std::vector<void*> one{all.out[part]};
        const std::vector<void*> one_there{all.device_out[part]};
        reduce_in_order(all.in, first, one, first, count, element, Reduction::sum);
        cuda::reduce_in_order(nullptr, all.device_in, first, one_there, first, count, element,
                              Reduction::sum);
      }
      all.check();
    }
  }
}

TEST_CASE("NaN is the maximum of CUDA reductions, and infinity is summed") {
  constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
  constexpr float kMax = std::numeric_limits<float>::infinity();
  Memory<float> one(std::vector<float>{kNone, 1, kMax, -0.0F});
  Memory<float> two(std::vector<float>{5, kNone, 2, -0.0F});
  const std::vector<const void*> in{one.data(), two.data()};
  Memory<float> out(4);
  const std::vector<void*> to{out.data()};
  for (const Reduction how : {Reduction::sum, Reduction::max}) {
    cuda::reduce_in_order(nullptr, in, 0, to, 0, 4, Element::f32, how);
    const auto result = out.content();
    CHECK(result[0] != result[0]);
    CHECK(result[1] != result[1]);
    CHECK(result[2] == kMax);
    CHECK(std::signbit(result[3]));
  }
}

TEST_CASE("CUDA copies reach every member, whatever their length and alignment") {
  for (const std::int64_t bytes : {0, 1, 15, 16, 17, 5000}) {
    for (const std::size_t shift : {0U, 2U}) {
      CAPTURE(bytes, shift);
      Members all(4, bytes, Element::f32, 9, shift);
      for (Raw& each : all.host) {
        std::copy_n(all.host[1].begin(), bytes, each.begin());
      }
      cuda::copy_to_all(nullptr, all.device_in[1], all.device_out, bytes);
      all.check();
    }
  }
}

}  // namespace

std::vector<KernelRun> runs_of_reductions() {
  return {{"reduction over members", [] {
             Members all(3, 1030, Element::bf16, 10);
             cuda::reduce_in_order(nullptr, all.device_in, 0, all.device_out, 0, 1030,
                                   Element::bf16, Reduction::sum);
             return bits_of(all.device[0].content(), all.device[2].content());
           }}};
}

}  // namespace echelon
