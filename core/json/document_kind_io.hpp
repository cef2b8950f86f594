// Which of this program's kinds of file a document is, for errors about a file given in the place
// of another. For *_io.cpp only.
#pragma once

#include <string>
#include <string_view>

#include "core/json/json_io.hpp"

namespace echelon {

enum class DocumentKind { cluster, calibration };

/// An error if `document` is no object, or a file of another kind: it names the kind found and the
/// flag or command that takes it. A document without the marks of any kind passes: its reader
/// reports what is missing.
[[nodiscard]] Status check_kind(const Json& document, std::string_view where, DocumentKind wanted);

}  // namespace echelon
