// Values and bytes that two processes of a test send each other over a Unix stream socket.
#pragma once

#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "fabric/domain.h"
#include "host/file.h"

namespace braid::fabric::test {

/// Taken out in the order in which they were put in.
class Parcel {
 public:
  Parcel() = default;
  explicit Parcel(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}

  template <typename Value>
  Parcel& put(const Value& value) {
    static_assert(std::is_trivially_copyable_v<Value> && !std::is_same_v<Value, Bytes> &&
                  !std::is_same_v<Value, MutableBytes>);
    const auto* first = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), first, first + sizeof value);
    return *this;
  }
  Parcel& put_bytes(Bytes bytes) {
    put(bytes.size());
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  Parcel& put_text(const std::string& text) {
    return put_bytes(std::as_bytes(std::span(text.data(), text.size())));
  }

  template <typename Value>
  Value take() {
    Value value;
    std::memcpy(&value, front(sizeof value).data(), sizeof value);
    return value;
  }
  std::vector<std::byte> take_bytes() {
    const Bytes bytes = front(take<size_t>());
    return {bytes.begin(), bytes.end()};
  }
  std::string take_text() {
    const Bytes bytes = front(take<size_t>());
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  Bytes all() const { return bytes_; }

 private:
  Bytes front(size_t size_bytes) {
    if (size_bytes > bytes_.size() - taken_) throw std::runtime_error("a parcel is too short");
    taken_ += size_bytes;
    return Bytes(bytes_).subspan(taken_ - size_bytes, size_bytes);
  }

  std::vector<std::byte> bytes_;
  size_t taken_ = 0;
};

/// These throw if the other process has gone, or says nothing for as long as the socket waits.
void send_parcel(int socket, const Parcel& parcel);
Parcel receive_parcel(int socket);
void send_file(int socket, int file);
File receive_file(int socket);

}  // namespace braid::fabric::test
