#include "core/model/attention.hpp"

#include "tests/support/catch.hpp"

namespace echelon {
namespace {

AttentionShape shape_of_heads(std::int64_t sequence, int samples, int heads, int kv_heads,
                              int head_dim) {
  AttentionShape shape;
  shape.sequence = sequence;
  shape.samples = samples;
  shape.heads = heads;
  shape.kv_heads = kv_heads;
  shape.head_dim = head_dim;
  return shape;
}

TEST_CASE(
    "parts of attention's deterministic backward stay below the limit unless a single head exceeds "
    "it") {
  const AttentionShape gpt2 = shape_of_heads(1024, 64, 12, 12, 64);
  CHECK(deterministic_workspace(gpt2, {64, 12}) == 1539_MiB);
  const AttentionPart part = largest_part(gpt2, 256_MiB);
  CHECK(part.samples == 8);
  CHECK(part.kv_heads == 12);
  // Four query heads share a key: 512 MiB of scores, 16 MiB of gradients and the sums' 128 KiB.
  const AttentionShape llama = shape_of_heads(8192, 1, 32, 8, 128);
  const AttentionPart one = largest_part(llama, 256_MiB);
  CHECK(one.samples == 1);
  CHECK(one.kv_heads == 1);
  CHECK(deterministic_workspace(llama, one) == 528_MiB + 128_KiB);
  // Reported by cuDNN 9.19, without alignment.
  CHECK(deterministic_workspace(shape_of_heads(77, 3, 4, 2, 64), {3, 2}) == Bytes{629760 + 3696});
  const AttentionShape odd = shape_of_heads(64, 6, 6, 6, 64);
  const Bytes head = deterministic_workspace(odd, {1, 1});
  CHECK(largest_part(odd, 5 * head).kv_heads == 3);
  CHECK(largest_part(odd, 17 * head).samples == 2);
  CHECK(largest_part(odd, 36 * head).samples == 6);
  CHECK(largest_part(odd, Bytes{}).kv_heads == 1);
}

}  // namespace
}  // namespace echelon
