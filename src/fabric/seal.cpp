#include "fabric/seal.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

namespace braid::fabric {
namespace {

const unsigned char* letters(std::span<const std::byte> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

class File {
 public:
  explicit File(const std::string& path) : number_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~File() {
    if (number_ >= 0) close(number_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

}  // namespace

uint64_t random_number() {
  uint64_t number = 0;
  while (number == 0 && getrandom(&number, sizeof number, 0) != sizeof number) number = 0;
  return number;
}

Result<Secret> Secret::of(std::span<const std::byte> key) {
  if (key.size() < kBytesMin || key.size() > kBytesMax)
    return Status::error("a secret of " + std::to_string(key.size()) + " bytes is too " +
                             (key.size() < kBytesMin ? "short" : "long"),
                         "Use " + std::to_string(kBytesMin) + " to " + std::to_string(kBytesMax) +
                             " random bytes: openssl rand -hex 32 > FILE");
  const auto wipe = [](std::vector<std::byte>* bytes) {
    sodium_memzero(bytes->data(), bytes->size());
    delete bytes;  // owner: the last Secret
  };
  Secret secret;
  secret.key_ = std::shared_ptr<std::vector<std::byte>>(
      new std::vector<std::byte>(key.begin(), key.end()), wipe);  // owner: key_
  return secret;
}

Result<Secret> Secret::of_file(const std::string& path) {
  const File file(path);
  struct stat about {};
  if (file.number() < 0 || fstat(file.number(), &about) != 0)
    return Status::error("the secret's file " + path + " cannot be read: " + strerror(errno));
  if ((about.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    return Status::error("others may read the secret's file " + path, "chmod 600 " + path);
  std::array<std::byte, kBytesMax + 2> bytes;
  const ssize_t count = read(file.number(), bytes.data(), bytes.size());
  if (count < 0)
    return Status::error("the secret's file " + path + " cannot be read: " + strerror(errno));
  std::span<const std::byte> key(bytes.data(), static_cast<size_t>(count));
  constexpr std::string_view kWhite = " \t\r\n";
  while (!key.empty() && kWhite.find(static_cast<char>(key.back())) != std::string_view::npos)
    key = key.first(key.size() - 1);
  Result<Secret> secret = of(key);
  sodium_memzero(bytes.data(), bytes.size());
  return secret.ok() ? secret
                     : Result<Secret>(Status::error(path + ": " + secret.status().message()));
}

Seal Secret::seal(std::span<const std::byte> bytes) const {
  static constexpr std::byte kNone{};  // a null pointer is no key, not even an empty one
  const std::span<const std::byte> key =
      key_ == nullptr ? std::span<const std::byte>(&kNone, 0) : std::span<const std::byte>(*key_);
  crypto_auth_hmacsha256_state state;
  std::array<unsigned char, crypto_auth_hmacsha256_BYTES> whole;
  crypto_auth_hmacsha256_init(&state, letters(key), key.size());
  crypto_auth_hmacsha256_update(&state, letters(bytes), bytes.size());
  crypto_auth_hmacsha256_final(&state, whole.data());
  Seal seal;
  std::memcpy(seal.data(), whole.data(), seal.size());
  return seal;
}

bool Secret::is_sealed(std::span<const std::byte> bytes, std::span<const std::byte> claimed) const {
  if (claimed.size() != kSealBytes) return false;
  const Seal right = seal(bytes);
  return sodium_memcmp(right.data(), claimed.data(), kSealBytes) == 0;
}

}  // namespace braid::fabric
