// CallCommunicator: base of communicators whose operations share one function, described by a Call.
#pragma once

#include "core/base/expects.hpp"
#include "runtime/comm/call.hpp"
#include "runtime/comm/communicator.hpp"

namespace echelon {

class CallCommunicator : public Communicator {
 public:
  void all_reduce(void* data, std::int64_t count, Element element, Reduction how) final {
    carry_out({Operation::all_reduce, element, how, 0, count}, data, data, {});
  }
  void reduce_scatter(const void* in, void* out, std::int64_t count, Element element) final {
    carry_out({Operation::reduce_scatter, element, Reduction::sum, 0, count}, in, out, {});
  }
  void all_gather(const void* in, void* out, std::int64_t count, Element element) final {
    carry_out({Operation::all_gather, element, Reduction::sum, 0, count}, in, out, {});
  }
  void all_to_all(const void* in, const ExchangeParts& to, void* out, const ExchangeParts& from,
                  Element element) final {
    const PartCounts parts = PartCounts::of(to, from, size());
    carry_out(call_of(parts, element, size()), in, out, parts);
  }
  void broadcast(void* data, std::int64_t count, Element element, int root) final {
    EXPECTS(root >= 0 && root < size(), "the root is a member");
    carry_out({Operation::broadcast, element, Reduction::sum, root, count}, data, data, {});
  }
  void send(const void* data, std::int64_t count, Element element, int to) final {
    EXPECTS(to >= 0 && to < size() && to != rank(), "a message goes to another member");
    carry_out({Operation::send, element, Reduction::sum, to, count}, data, nullptr, {});
  }
  void receive(void* data, std::int64_t count, Element element, int from) final {
    EXPECTS(from >= 0 && from < size() && from != rank(), "a message comes from another member");
    carry_out({Operation::receive, element, Reduction::sum, from, count}, nullptr, data, {});
  }
  void barrier() final { carry_out({}, nullptr, nullptr, {}); }

 private:
  /// `in` and `out` as the operation has them; null where it has none.
  virtual void carry_out(const Call& call, const void* in, void* out, const PartCounts& parts) = 0;
};

}  // namespace echelon
