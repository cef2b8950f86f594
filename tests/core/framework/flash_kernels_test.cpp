#include "core/framework/flash_kernels.hpp"

#include <string>

#include "core/framework/framework.hpp"
#include "core/model/model_io.hpp"
#include "core/plan/job.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

std::string lack_of(const char* framework, double capability, Dtype compute,
                    const char* model = "llama3-8b") {
  return why_no_flash(*find_framework(framework), capability, compute, *load_model(model));
}

TEST_CASE("flash attention takes 16 bits, PyTorch's memory-efficient kernel fp32 as well") {
  for (const char* name :
       {"megatron-core", "megatron-2021", "megatron-deepspeed", "nanotron", "hai-llm"}) {
    INFO(name);
    CHECK(lack_of(name, 9, Dtype::fp32) == "none in fp32: its kernels take bf16 and fp16");
    CHECK(lack_of(name, 9, Dtype::bf16) == "");
    CHECK(lack_of(name, 9, Dtype::fp16) == "");
    CHECK(lack_of(name, 9, Dtype::fp8) == "");  // products in fp8, attention in 16 bits
  }
  for (const char* name : {"torchtitan", "deepspeed", "llm-foundry"}) {
    INFO(name);
    CHECK(lack_of(name, 9, Dtype::fp32) == "");
    CHECK(lack_of(name, 9, Dtype::fp64) == "none in fp64: its kernels take fp32, bf16 and fp16");
  }
  CHECK(lack_of("echelon", 9, Dtype::fp64) == "");
  CHECK(lack_of("echelon", 0, Dtype::fp32) == "");
}

TEST_CASE("flash attention begins with Ampere, but for PyTorch's memory-efficient kernel") {
  CHECK(lack_of("megatron-core", 7, Dtype::fp16) ==
        "none on compute capability 7.0: its kernels begin with 8.0");
  CHECK(lack_of("nanotron", 7.5, Dtype::fp16) ==
        "none on compute capability 7.5: its kernels begin with 8.0");
  CHECK(lack_of("megatron-core", 8, Dtype::bf16) == "");
  CHECK(lack_of("megatron-core", 0, Dtype::bf16) == "");  // of an unknown GPU
  CHECK(lack_of("torchtitan", 7, Dtype::fp16) == "");
}

// Whether TransformerEngine d0067d0d leaves a kernel to train heads of 256: FlashAttention 2
// on 8.0, 9.0, 10.0 and 12.0 (dot_product_attention/utils.py:926), cuDNN's on 9.0 and 10.x
// (fused_attn.cpp:312); on 12.1 neither.
TEST_CASE("TransformerEngine trains heads of over 192 on some GPUs alone") {
  for (const double capability : {8.0, 9.0, 10.0, 10.3, 10.7, 12.0}) {
    INFO(capability);
    CHECK(lack_of("megatron-core", capability, Dtype::bf16, "gemma-2b") == "");
  }
  for (const double capability : {8.6, 8.9, 12.1}) {
    INFO(capability);
    CHECK(lack_of("megatron-core", capability, Dtype::bf16, "gemma-2b").find("up to 192") !=
          std::string::npos);
    CHECK(lack_of("megatron-core", capability, Dtype::bf16, "nemotron-4-340b") == "");
    CHECK(lack_of("nanotron", capability, Dtype::bf16, "gemma-2b") == "");
    CHECK(lack_of("torchtitan", capability, Dtype::bf16, "gemma-2b") == "");
  }
  CHECK(lack_of("megatron-core", 8.9, Dtype::bf16, "qwen3.5-9b") ==
        "none for heads of 256 on compute capability 8.9: its kernels take up to 192");
}

TEST_CASE("the widest heads of a model decide, and sparse attention has kernels of its own") {
  // Queries of 192 beside values of 128; of GLM-4.7-Flash both have 256.
  CHECK(lack_of("megatron-core", 8.9, Dtype::bf16, "deepseek-v3") == "");
  CHECK(lack_of("megatron-core", 8.9, Dtype::bf16, "glm-4.7-flash") != "");
  ModelSpec values = *load_model("deepseek-v3");
  values.mla.v_head_dim = 256;
  CHECK(why_no_flash(*find_framework("megatron-core"), 8.9, Dtype::bf16, values) != "");
  // Global attention of Gemma 4 has heads of 512.
  CHECK(lack_of("megatron-core", 0, Dtype::bf16, "gemma4-31b") ==
        "none for heads of 512: its kernels take up to 256");
  CHECK(lack_of("deepspeed", 9, Dtype::bf16, "gemma4-31b") == "");
  CHECK(lack_of("megatron-core", 8.9, Dtype::fp32, "glm-5") == "");
  ModelSpec odd = *load_model("llama3-8b");
  odd.head_dim = 100;
  CHECK(why_no_flash(*find_framework("megatron-core"), 9, Dtype::bf16, odd) ==
        "none for heads of 100: its kernels take multiples of 8");
  CHECK(why_no_flash(*find_framework("nanotron"), 9, Dtype::bf16, odd) == "");  // it pads them
}

}  // namespace
}  // namespace echelon
