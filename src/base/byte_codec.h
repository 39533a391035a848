// Reads bytes from outside with bounds checks, and with limits before anything is allocated. One
// description of each structure serves writing and reading: fields(archive, structure). Little
// endian; the length of a list or a string, a Count, precedes it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace braid {

template <typename Count>
class ByteWriter {
 public:
  template <typename Number>
  void number(const Number& value) {
    std::array<std::byte, sizeof value> all;
    for (size_t i = 0; i < all.size(); ++i)
      all[i] = static_cast<std::byte>(static_cast<uint64_t>(value) >> 8 * i);
    add(all);
  }
  template <typename Container>
  void bytes(const Container& values, size_t) {
    static_assert(sizeof(*values.data()) == 1);
    number(static_cast<Count>(values.size()));
    add(std::as_bytes(std::span(values)));
  }
  template <typename T, typename Each>
  void list(const std::vector<T>& values, size_t, const Each& each) {
    number(static_cast<Count>(values.size()));
    for (const T& value : values) each(value);
  }
  const std::vector<std::byte>& written() const { return bytes_; }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  void add(std::span<const std::byte> more) {
    bytes_.insert(bytes_.end(), more.begin(), more.end());
  }

  std::vector<std::byte> bytes_;
};

/// After the first error, every read returns zero, and `ok` is false.
template <typename Count>
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <typename Number>
  void number(Number& value) {
    uint64_t read = 0;
    const auto from = take(sizeof value);
    for (size_t i = 0; i < from.size(); ++i) read |= static_cast<uint64_t>(from[i]) << 8 * i;
    if (std::is_same_v<Number, bool> && read > 1) ok_ = false;
    value = static_cast<Number>(read);
  }
  template <typename Container>
  void bytes(Container& values, size_t count_max) {
    const auto from = take(count(count_max));
    values.resize(from.size());
    if (!from.empty()) std::memcpy(values.data(), from.data(), from.size());
  }
  template <typename T, typename Each>
  void list(std::vector<T>& values, size_t count_max, const Each& each) {
    values.resize(count(count_max));
    for (T& value : values) each(value);
  }

  bool ok() const { return ok_; }
  bool is_at_end() const { return rest_.empty(); }
  void fail() { ok_ = false; }
  /// Excludes the last bytes, which another reader handles.
  void leave_out(size_t size_bytes) {
    if (rest_.size() < size_bytes) fail();
    rest_ = rest_.first(rest_.size() < size_bytes ? 0 : rest_.size() - size_bytes);
  }

 private:
  /// Every element has at least a byte, so a count that exceeds the remaining bytes allocates
  /// nothing.
  size_t count(size_t count_max) {
    Count count = 0;
    number(count);
    if (count > count_max || count > rest_.size()) ok_ = false;
    return ok_ ? count : 0;
  }
  std::span<const std::byte> take(size_t size_bytes) {
    if (!ok_ || size_bytes > rest_.size()) {
      ok_ = false;
      return {};
    }
    const auto taken = rest_.first(size_bytes);
    rest_ = rest_.subspan(size_bytes);
    return taken;
  }

  std::span<const std::byte> rest_;
  bool ok_ = true;
};

}  // namespace braid
