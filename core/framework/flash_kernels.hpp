// Kernels of attention that store no matrix of scores (flash attention): what they take.
#pragma once

#include <array>
#include <limits>

namespace echelon {

/// A kernel of attention, forward and backward, that stores no matrix of scores.
struct FlashKernel {
  double from = 0;  ///< on GPUs of this compute capability or later …
  double below = std::numeric_limits<double>::infinity();  ///< … and earlier than this one
  double widest_number = 2;                                ///< bytes: of 2, bf16 and fp16
  int widest_head = std::numeric_limits<int>::max();
  int head_multiple = 1;  ///< a head is a multiple of so many numbers
};

/// The package flash-attn, without dropout in heads of over 192 on consumer GPUs.
/// Source: flash-attention 0251105a, README.md:145 (Ampere or later; fp16 and bf16; head dimensions
/// up to 256), csrc/flash_attn/flash_api.cpp:392, csrc/flash_attn/src/flash_bwd_launch_template.h,
/// run_mha_bwd_hdim256.
inline constexpr std::array kFlashAttnPackage = {FlashKernel{.from = 8, .widest_head = 256}};

/// PyTorch's: scaled_dot_product_attention has a memory-efficient kernel where its flash attention
/// and cuDNN's refuse, of fp32, of GPUs before Ampere and of heads of any width.
/// Source: PyTorch 001f694a, aten/src/ATen/native/transformers/cuda/sdp_utils.cpp,
/// can_use_mem_efficient_attention, check_mem_efficient_hardware_support and
/// check_head_dim_size_mem_efficient.
inline constexpr std::array kTorchAttention = {FlashKernel{.widest_number = 4}};

}  // namespace echelon
