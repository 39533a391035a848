// Seals: engines seal their messages, addresses and descriptors with the secret that they share
// (HMAC-SHA256, RFC 2104 and FIPS 180-4; the first 128 bits, as RFC 2104 section 5 allows). Without
// a secret the key is empty: a seal then shows damage on the way, but does not prove the sender.
//
// Crypto++ computes it, since it uses the instructions that CPUs have for SHA-256. It is linked in
// statically (its static library is PIC).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"

namespace braid::fabric {

inline constexpr size_t kSealBytes = 16;
using Seal = std::array<std::byte, kSealBytes>;

/// The commands, for errors.
std::string making_of_secret(const std::string& path);

/// Cheap to copy; copies share one key, which is wiped with the last.
class Secret {
 public:
  static constexpr size_t kBytesMin = 16;
  static constexpr size_t kBytesMax = 4096;

  Secret() = default;  // none
  static Result<Secret> of(std::span<const std::byte> key);
  /// The content of the regular file, without white space at its end. An error if anybody but the
  /// file's owner may read it.
  static Result<Secret> of_file(const std::string& path);

  bool is_set() const { return keyed_ != nullptr; }
  Seal seal(std::span<const std::byte> bytes) const;
  /// Takes a time that does not depend on the bytes.
  bool is_sealed(std::span<const std::byte> bytes, std::span<const std::byte> seal) const;

 private:
  struct Keyed;  // HMAC's state after the key, computed once
  static const Keyed& unkeyed();

  std::shared_ptr<const Keyed> keyed_;
};

}  // namespace braid::fabric
