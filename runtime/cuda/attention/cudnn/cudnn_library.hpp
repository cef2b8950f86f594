// libcudnn.so.9, loaded at run time: the backend starts without it.
#pragma once

#include <string>

namespace echelon::cuda {

/// Looks for the library at the first call, in the folder that ECHELON_CUDNN names or where the
/// loader does, and keeps it loaded. The reason why it cannot be used; empty if it can. A version
/// older than the headers of this build is not used: NVIDIA promises that an application works with
/// the minor version it was built against and later ones.
/// Source: cuDNN's developer guide, "cuDNN API Compatibility".
[[nodiscard]] const std::string& cudnn_missing();

}  // namespace echelon::cuda
