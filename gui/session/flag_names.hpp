// Flags that the window itself reads or writes; all others it takes from the flag table.
#pragma once

namespace echelon::gui {

inline constexpr const char* kMaxGpusFlag = "gpus-at-most";
inline constexpr const char* kZeroGroupFlag = "shard-group";
inline constexpr const char* kFrameworkFlag = "stack";
inline constexpr const char* kTrainTokensFlag = "tokens";

/// Flags whose meaning depends on the model's layers.
inline constexpr const char* kPerLayerFlags[] = {"layers-per-stage", "recompute-layers",
                                                 "selective-layers"};

}  // namespace echelon::gui
