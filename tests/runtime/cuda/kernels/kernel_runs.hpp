// Small runs of kernels, for tests of properties of all kernels: each returns all bits of its
// results.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace echelon {

struct KernelRun {
  std::string name;
  std::function<std::string()> bits;
};
std::vector<KernelRun> runs_of_attention();
std::vector<KernelRun> runs_of_norms();
std::vector<KernelRun> runs_of_elementwise();
std::vector<KernelRun> runs_of_latents();
std::vector<KernelRun> runs_of_experts();
std::vector<KernelRun> runs_of_loss();
std::vector<KernelRun> runs_of_optimizer();
std::vector<KernelRun> runs_of_reductions();

template <class... T>
std::string bits_of(const std::vector<T>&... values) {
  std::string bits;
  const auto append = [&](const auto& some) {
    bits.append(reinterpret_cast<const char*>(some.data()), some.size() * sizeof(some[0]));
  };
  (append(values), ...);
  return bits;
}

inline std::vector<KernelRun> all_kernel_runs() {
  std::vector<KernelRun> all;
  for (const auto& runs :
       {runs_of_attention(), runs_of_norms(), runs_of_elementwise(), runs_of_latents(),
        runs_of_experts(), runs_of_loss(), runs_of_optimizer(), runs_of_reductions()}) {
    all.insert(all.end(), runs.begin(), runs.end());
  }
  return all;
}

}  // namespace echelon
