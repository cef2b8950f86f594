#include "runtime/comm/local_ranks.hpp"

#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace echelon {

void on_local_ranks(RunThreads& run_threads, const World& world,
                    const std::function<void(int rank)>& work) {
  std::mutex mutex;
  std::exception_ptr first;
  const auto try_it = [&](int rank) {
    const LongWait patient(run_threads.start_up());
    try {
      work(rank);
    } catch (...) {
      const std::exception_ptr why = std::current_exception();
      {
        const std::lock_guard lock(mutex);
        if (!first) first = why;
      }
      try {
        std::rethrow_exception(why);
      } catch (const RunFailure& failure) {
        run_threads.stop(failure.kind(), failure.what());
      } catch (const std::exception& other) {
        run_threads.stop(RunFailure::Kind::defect, other.what());
      } catch (...) {
        run_threads.stop(RunFailure::Kind::defect, "the ranks of this process could not begin");
      }
    }
  };
  std::vector<std::jthread> threads;
  for (const int rank : world.local_ranks()) threads.emplace_back(try_it, rank);
  threads.clear();  // joins
  if (first) std::rethrow_exception(first);
}

}  // namespace echelon
