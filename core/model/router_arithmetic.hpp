// Arithmetic of routers that no field of MixtureOfExperts describes, among
// ModelConstants::other_arithmetic.
#pragma once

namespace echelon {

/// Groups of experts are compared by their best expert instead of the sum of their two best.
/// Source: transformers, DeepseekV2TopkRouter with topk_method group_limited_greedy.
inline constexpr const char* kGroupsByBestExpert = "groups of experts chosen by their best expert";

}  // namespace echelon
