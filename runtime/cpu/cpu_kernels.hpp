// CpuKernels: the kernels of this folder for a queue that is the calling thread.
#pragma once

#include <vector>

#include "core/base/units.hpp"
#include "runtime/backend/kernels.hpp"

namespace echelon {

template <class T>
class CpuKernels : public Kernels<T> {
 public:
  void begin(const Instruction&) override;
  WithinTimes end(const Instruction&) override;
  void wait(const Instruction&) override {}  // earlier work on a queue is complete
  void set_mark(std::size_t) override {}     // all work of a step is complete when the next begins
  void wait_for_mark(std::size_t) override {}
  void start(Within part) override;
  void stop() override;
  void waited(std::optional<Within> part, Seconds time) override;
  [[nodiscard]] SideStream* side() override { return nullptr; }
  void upload(const void* from, void* to, std::int64_t bytes) override;
  void download(const void* from, void* to, std::int64_t bytes) override;
  void clear(void* block, std::int64_t bytes) override;

#define ECHELON_OPERATOR(...) __VA_ARGS__ override;
#include "runtime/backend/operators.def"
#undef ECHELON_OPERATOR

 private:
  struct SubSpan {
    Within part;
    Seconds since;
    Seconds without_core;  ///< of the thread, until then
    Seconds nested;        ///< of parts in between
    Seconds peers;         ///< waited for other ranks
  };
  [[nodiscard]] Seconds& at(Within part) { return within_[static_cast<std::size_t>(part)]; }

  Seconds without_core_;  ///< of the thread, until the instruction began; from then on less what it
                          ///< was without a core in communication
  std::vector<SubSpan> open_;
  WithinTimes within_{};
};

}  // namespace echelon
