// Flags that the window itself reads or writes; all others it takes from the flag table.
#pragma once

namespace echelon::gui {

inline constexpr const char* kMaxGpusFlag = "max-gpus";
inline constexpr const char* kZeroGroupFlag = "zero-group-size";
inline constexpr const char* kFrameworkFlag = "framework";
inline constexpr const char* kTrainTokensFlag = "train-tokens";

/// Flags whose meaning depends on the model's layers.
inline constexpr const char* kPerLayerFlags[] = {"layers-per-stage", "recompute-layers",
                                                 "selective-layers"};

}  // namespace echelon::gui
