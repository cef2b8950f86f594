// The sizes that `plan calibrate --backend cuda` times.
#include <utility>

#include "runtime/cuda/measure/measure.hpp"

namespace echelon::cuda {

MeasuredSizes usual_sizes() {
  MeasuredSizes sizes;
  // Layers of GPT-2 124M and 1.5B, of 1B and 7B Llama-like models, and a part of a head.
  for (const std::int64_t rows : {2048, 8192, 16384}) {
    for (const auto& [in, out] :
         {std::pair(768, 3072), std::pair(3072, 768), std::pair(1600, 4800), std::pair(2048, 16384),
          std::pair(4096, 12288), std::pair(11008, 4096)}) {
      sizes.linears.push_back({rows, in, out});
    }
  }
  sizes.linears.push_back({1024, 4096, 32000});
  sizes.attentions = {
      attention_of_heads(512, 16, 12, 12, 64), attention_of_heads(1024, 8, 12, 12, 64),
      attention_of_heads(4096, 2, 12, 12, 64), attention_of_heads(1024, 8, 32, 32, 128),
      attention_of_heads(2048, 4, 32, 8, 128), attention_of_heads(8192, 1, 32, 8, 128)};
  // Larger than caches.
  sizes.matrices = {{32768, 1600}, {16384, 4096}, {16384, 11008}};
  sizes.logits = {{1024, 50304}, {1024, 128256}};
  sizes.parameters = {std::int64_t{1} << 24, std::int64_t{1} << 27};
  sizes.layers = {{2, 768, 1024, 8}, {2, 1600, 1024, 4}, {2, 4096, 2048, 1}};
  sizes.copies = {std::int64_t{1} << 20, std::int64_t{1} << 26, std::int64_t{1} << 29};
  sizes.collectives = {std::int64_t{1} << 16, std::int64_t{1} << 20, std::int64_t{1} << 23,
                       std::int64_t{1} << 26, std::int64_t{1} << 29};
  sizes.launches = 256;
  sizes.nccl_calls = 256;
  sizes.warm_up = Seconds{2};
  sizes.each = Seconds{0.1};
  sizes.max_time = Seconds{36};
  return sizes;
}

}  // namespace echelon::cuda
