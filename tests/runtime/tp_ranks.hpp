// Tensor-parallel ranks as threads of a test.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "core/expects.hpp"
#include "runtime/communicator.hpp"
#include "runtime/crew.hpp"

namespace echelon {

/// Sums in member order, by everybody for itself.
class TestGroup {
 public:
  TestGroup(Crew& crew, int size) : gate_(crew), members_(static_cast<std::size_t>(size)) {}
  [[nodiscard]] int size() const { return static_cast<int>(members_.size()); }
  struct Call {
    const void* in = nullptr;
    std::int64_t count = 0;
  };
  /// What everybody brought; valid until all have called `leave`.
  const std::vector<Call>& meet(int rank, Call call) {
    members_[static_cast<std::size_t>(rank)] = call;
    wait_for_all();
    return members_;
  }
  void wait_for_all() {
    const int round = arrive();
    gate_.await([&] { return round_ > round; });
  }

 private:
  int arrive() {
    return gate_.change([&] {
      const int round = round_;
      if (++arrived_ == size()) {
        arrived_ = 0;
        ++round_;
      }
      return round;
    });
  }
  Gate gate_;
  std::vector<Call> members_;
  int arrived_ = 0;
  int round_ = 0;
};

class TestCommunicator final : public Communicator {
 public:
  TestCommunicator(TestGroup& group, int rank) : group_(group), rank_(rank) {}
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return group_.size(); }
  void all_reduce(void* data, std::int64_t count, Element element, Reduction how) override {
    reduce(data, data, 0, count, element, how);
  }
  void reduce_scatter(const void* in, void* out, std::int64_t count, Element element) override {
    reduce(in, out, rank_ * count, count, element, Reduction::sum);
  }
  void all_gather(const void* in, void* out, std::int64_t count, Element element) override {
    const auto& all = group_.meet(rank_, {in, count});
    const auto bytes = static_cast<std::size_t>(count * bytes_of(element));
    std::vector<std::byte> whole;
    for (const auto& member : all) {
      EXPECTS(member.count == count, "ranks gather different counts");
      const auto* from = static_cast<const std::byte*>(member.in);
      whole.insert(whole.end(), from, from + bytes);
    }
    group_.wait_for_all();
    std::memcpy(out, whole.data(), whole.size());
  }
  void broadcast(void*, std::int64_t, Element, int) override { EXPECTS(false, "not called"); }
  void send(const void*, std::int64_t, Element, int) override { EXPECTS(false, "not called"); }
  void receive(void*, std::int64_t, Element, int) override { EXPECTS(false, "not called"); }
  void barrier() override { group_.wait_for_all(); }

 private:
  void reduce(const void* in, void* out, std::int64_t first, std::int64_t count, Element element,
              Reduction how) {
    switch (element) {
      case Element::f64: return reduce_as<double>(in, out, first, count, how);
      case Element::f32: return reduce_as<float>(in, out, first, count, how);
      case Element::bf16: return reduce_as<Bfloat16>(in, out, first, count, how);
      case Element::i32: EXPECTS(false, "not called");
    }
  }
  template <class T>
  void reduce_as(const void* in, void* out, std::int64_t first, std::int64_t count, Reduction how) {
    const auto& all = group_.meet(rank_, {in, count});
    std::vector<T> sum(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) {
      Wide<T> total = 0;
      for (std::size_t member = 0; member < all.size(); ++member) {
        EXPECTS(all[member].count == count, "ranks reduce different counts");
        const Wide<T> x(static_cast<const T*>(all[member].in)[first + i]);
        total = member == 0 ? x : how == Reduction::sum ? total + x : std::max(total, x);
      }
      sum[static_cast<std::size_t>(i)] = T(total);
    }
    group_.wait_for_all();
    std::memcpy(out, sum.data(), sum.size() * sizeof(T));
  }

  TestGroup& group_;
  int rank_;
};

/// Runs work(rank, its end of the group, its end of the group of its kv head) on `tp` threads.
inline void on_tp_ranks(int tp, int kv_heads,
                        const std::function<void(int, Communicator*, Communicator*)>& work) {
  Crew crew(Seconds{60});
  TestGroup group(crew, tp);
  const int replicas = std::max(1, tp / kv_heads);
  std::list<TestGroup> kv_groups;
  std::list<TestCommunicator> ends;
  for (int rank = 0; rank < tp; ++rank) {
    if (rank % replicas == 0) kv_groups.emplace_back(crew, replicas);
    Communicator* line = &ends.emplace_back(group, rank);
    Communicator* kv = &ends.emplace_back(kv_groups.back(), rank % replicas);
    crew.add("tp rank " + std::to_string(rank), [=, &work] { work(rank, line, kv); });
  }
  crew.run();
}

}  // namespace echelon
