#include "runtime/comm/tcp/run_token.hpp"

#include <sys/random.h>

#include <vector>

#include "core/base/expects.hpp"

#ifdef ECHELON_OPENSSL
#include <openssl/evp.h>
#include <openssl/hmac.h>
#endif

namespace echelon::tcp {

Nonce new_nonce() {
  Nonce nonce{};
  EXPECTS(::getrandom(nonce.data(), nonce.size(), 0) == static_cast<ssize_t>(nonce.size()),
          "the system has random numbers");
  return nonce;
}

bool same(const Signature& one, const Signature& other) {
  std::byte different{};
  for (std::size_t i = 0; i < one.size(); ++i) different |= one[i] ^ other[i];
  return different == std::byte{};
}

#ifdef ECHELON_OPENSSL

Signature sign(const std::string& token, const Nonce& nonce, std::span<const std::byte> message) {
  Signature signature{};
  if (token.empty()) return signature;
  std::vector<unsigned char> text;
  for (const std::byte each : nonce) text.push_back(static_cast<unsigned char>(each));
  for (const std::byte each : message) text.push_back(static_cast<unsigned char>(each));
  unsigned length = 0;
  const unsigned char* const made =
      HMAC(EVP_sha256(), token.data(), static_cast<int>(token.size()), text.data(), text.size(),
           reinterpret_cast<unsigned char*>(signature.data()), &length);
  EXPECTS(made != nullptr && length == signature.size(), "SHA-256 gives 32 bytes");
  return signature;
}

Status check_token(const std::string&) { return Done{}; }

#else

Signature sign(const std::string&, const Nonce&, std::span<const std::byte>) { return {}; }

Status check_token(const std::string& token) {
  if (token.empty()) return Done{};
  return environment_error(kTokenVariable, "this program was built without OpenSSL",
                           "install libssl-dev and build again");
}

#endif

}  // namespace echelon::tcp
