// RunToken: the secret by which the processes of a run know each other.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>

#include "core/base/result.hpp"

namespace echelon::tcp {

/// Where processes take it from.
inline constexpr const char* kTokenVariable = "ECHELON_RUN_TOKEN";

using Nonce = std::array<std::byte, 16>;
using Signature = std::array<std::byte, 32>;

/// Random bytes of the system, for one connection.
[[nodiscard]] Nonce new_nonce();

/// HMAC with SHA-256 (RFC 2104, by OpenSSL) of a nonce of the other side and a message. Without a
/// token signatures are zeros: every process is believed.
[[nodiscard]] Signature sign(const std::string& token, const Nonce& nonce,
                             std::span<const std::byte> message);
/// In a time that does not depend on where they differ.
[[nodiscard]] bool same(const Signature& one, const Signature& other);

/// Error: a token in a program that was built without OpenSSL.
[[nodiscard]] Status check_token(const std::string& token);

}  // namespace echelon::tcp
