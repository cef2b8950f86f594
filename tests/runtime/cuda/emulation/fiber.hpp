// A function with its own stack, on the thread that resumes it.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <cstddef>

namespace echelon::emulation {

inline constexpr std::size_t kStackBytes = 128 * 1024;

/// May be abandoned before its end: the objects on its stack are then not destroyed.
class Fiber {
 public:
  /// `stack`: kStackBytes. `body` throws nothing.
  Fiber(char* stack, void (*body)());
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber() = default;
  /// Runs until the fiber yields or its body returns.
  void resume();
  /// Called by the fiber itself.
  void yield();

 private:
  static void enter();

  ucontext_t context_;
  jmp_buf fiber_;
  jmp_buf resumer_;
  char* stack_;
  void (*body_)();
  bool started_ = false;
};

}  // namespace echelon::emulation
