#include "fabric/seal.h"

#include <crypto++/hmac.h>
#include <crypto++/misc.h>
#include <crypto++/sha.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "host/file.h"

namespace braid::fabric {
namespace {

using Hmac = CryptoPP::HMAC<CryptoPP::SHA256>;

const unsigned char* letters(std::span<const std::byte> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

}  // namespace

std::string making_of_secret(const std::string& path) {
  return "head -c 32 /dev/urandom > " + path + "; chmod 600 " + path +
         ", the same file on every host";
}

struct Secret::Keyed {
  explicit Keyed(std::span<const std::byte> key) : hmac(letters(key), key.size()) {}

  Hmac hmac;  // wipes its key in the end
};

const Secret::Keyed& Secret::unkeyed() {
  static constexpr std::byte kNothing{};  // Crypto++ wants an address
  static const Keyed empty({&kNothing, 0});
  return empty;
}

Result<Secret> Secret::of(std::span<const std::byte> key) {
  if (key.size() < kBytesMin || key.size() > kBytesMax)
    return Status::error("a secret of " + std::to_string(key.size()) + " bytes is too " +
                             (key.size() < kBytesMin ? "short" : "long"),
                         "Use " + std::to_string(kBytesMin) + " to " + std::to_string(kBytesMax) +
                             " random bytes: " + making_of_secret("FILE"));
  Secret secret;
  secret.keyed_ = std::make_shared<const Keyed>(key);
  return secret;
}

Result<Secret> Secret::of_file(const std::string& path) {
  // A FIFO is not waited for. On a regular file the flag has no effect.
  const File file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat about {};
  if (!file.is_open() || fstat(file.get(), &about) != 0)
    return Status::error("the secret's file " + path + " cannot be read: " + strerror(errno),
                         errno == ENOENT ? "Make it: " + making_of_secret(path) : "");
  if (!S_ISREG(about.st_mode))
    return Status::error("the secret's file " + path + " is no regular file",
                         "Name a file with the secret: " + making_of_secret("FILE"));
  if ((about.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    return Status::error("others may read the secret's file " + path, "chmod 600 " + path);
  std::array<std::byte, kBytesMax + 2> bytes;
  const ssize_t count = read(file.get(), bytes.data(), bytes.size());
  if (count < 0)
    return Status::error("the secret's file " + path + " cannot be read: " + strerror(errno));
  std::span<const std::byte> key(bytes.data(), static_cast<size_t>(count));
  constexpr std::string_view kWhite = " \t\r\n";
  while (!key.empty() && kWhite.find(static_cast<char>(key.back())) != std::string_view::npos)
    key = key.first(key.size() - 1);
  Result<Secret> secret = of(key);
  CryptoPP::SecureWipeArray(reinterpret_cast<unsigned char*>(bytes.data()), bytes.size());
  return secret.ok() ? secret
                     : Result<Secret>(Status::error(path + ": " + secret.status().message()));
}

Seal Secret::seal(std::span<const std::byte> bytes) const {
  Hmac hmac = (keyed_ == nullptr ? unkeyed() : *keyed_).hmac;
  Seal seal;
  hmac.CalculateTruncatedDigest(reinterpret_cast<unsigned char*>(seal.data()), seal.size(),
                                letters(bytes), bytes.size());
  return seal;
}

bool Secret::is_sealed(std::span<const std::byte> bytes, std::span<const std::byte> claimed) const {
  if (claimed.size() != kSealBytes) return false;
  const Seal right = seal(bytes);
  return CryptoPP::VerifyBufsEqual(letters(right), letters(claimed), kSealBytes);
}

}  // namespace braid::fabric
