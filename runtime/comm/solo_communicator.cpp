#include "runtime/comm/solo_communicator.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "core/base/expects.hpp"

namespace echelon {
namespace {

class SoloCommunicator final : public Communicator {
 public:
  explicit SoloCommunicator(Copy copy) : copy_(std::move(copy)) {}
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 1; }
  void all_reduce(void*, std::int64_t, Element, Reduction) override {}
  void reduce_scatter(const void* in, void* out, std::int64_t count, Element element) override {
    copy(in, out, count * bytes_of(element));
  }
  void all_gather(const void* in, void* out, std::int64_t count, Element element) override {
    copy(in, out, count * bytes_of(element));
  }
  void all_to_all(const void* in, const ExchangeParts& to, void* out, const ExchangeParts& from,
                  Element element) override {
    EXPECTS(std::ranges::equal(to.counts, from.counts), "a member gets what it sends to itself");
    copy(in, out,
         std::accumulate(to.counts.begin(), to.counts.end(), std::int64_t{0}) * bytes_of(element));
  }
  void broadcast(void*, std::int64_t, Element, int) override {}
  void send(const void*, std::int64_t, Element, int) override {
    EXPECTS(false, "a group of one has nobody to send to");
  }
  void receive(void*, std::int64_t, Element, int) override {
    EXPECTS(false, "a group of one has nobody to receive from");
  }
  void barrier() override {}
  [[nodiscard]] Seconds transfer_began() const override { return {}; }

 private:
  void copy(const void* in, void* out, std::int64_t bytes) const {
    if (in == out || bytes == 0) return;
    if (copy_) return copy_(in, out, bytes);
    std::memcpy(out, in, static_cast<std::size_t>(bytes));
  }

  Copy copy_;
};

}  // namespace

std::unique_ptr<Communicator> solo_communicator(Copy copy) {
  return std::make_unique<SoloCommunicator>(std::move(copy));
}

}  // namespace echelon
