#include "tests/runtime/cuda/emulation/fiber.hpp"

// AddressSanitizer must know which stack is in use.
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace echelon::emulation {
namespace {

Fiber* entering = nullptr;

#ifdef __SANITIZE_ADDRESS__
const void* resumer_stack = nullptr;
std::size_t resumer_bytes = 0;
void use_anew(char* stack) { __asan_unpoison_memory_region(stack, kStackBytes); }
void before_fiber(char* stack) { __sanitizer_start_switch_fiber(nullptr, stack, kStackBytes); }
void in_fiber() { __sanitizer_finish_switch_fiber(nullptr, &resumer_stack, &resumer_bytes); }
void before_resumer() { __sanitizer_start_switch_fiber(nullptr, resumer_stack, resumer_bytes); }
void in_resumer() { __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr); }
#else
void use_anew(char*) {}
void before_fiber(char*) {}
void in_fiber() {}
void before_resumer() {}
void in_resumer() {}
#endif

}  // namespace

Fiber::Fiber(char* stack, void (*body)()) : stack_(stack), body_(body) {
  use_anew(stack);
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack;
  context_.uc_stack.ss_size = kStackBytes;
  context_.uc_link = nullptr;
  makecontext(&context_, &Fiber::enter, 0);
}

void Fiber::enter() {
  Fiber& me = *entering;
  in_fiber();
  me.body_();
  before_resumer();
  _longjmp(me.resumer_, 1);
}

// Jumps after the first entry: swapcontext() would ask the kernel for the signal mask each time.
void Fiber::resume() {
  if (_setjmp(resumer_) == 0) {
    before_fiber(stack_);
    if (started_) _longjmp(fiber_, 1);
    started_ = true;
    entering = this;
    setcontext(&context_);
  }
  in_resumer();
}

void Fiber::yield() {
  if (_setjmp(fiber_) == 0) {
    before_resumer();
    _longjmp(resumer_, 1);
  }
  in_fiber();
}

}  // namespace echelon::emulation
