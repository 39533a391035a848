#include "messages.h"

#include <chrono>
#include <cstring>
#include <thread>

namespace kv_push {
namespace {

using std::chrono::steady_clock;

// Numbers as they lie in memory: both hosts are x86-64.
class Writer {
 public:
  template <typename Number>
  void number(const Number& value) {
    const auto* first = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), first, first + sizeof value);
  }
  template <typename List>
  void list(const List& values) {
    number(static_cast<uint32_t>(values.size()));
    for (const auto& value : values) number(value);
  }
  Bytes take() { return std::move(bytes_); }

 private:
  Bytes bytes_;
};

class Reader {
 public:
  explicit Reader(const Bytes& bytes) : bytes_(bytes) {}
  template <typename Number>
  void number(Number& value) {
    is_ok_ = is_ok_ && bytes_.size() - place_ >= sizeof value;
    if (!is_ok_) return;
    std::memcpy(&value, &bytes_[place_], sizeof value);
    place_ += sizeof value;
  }
  template <typename List>
  void list(List& values) {
    uint32_t count = 0;
    number(count);
    is_ok_ = is_ok_ && count <= (bytes_.size() - place_) / sizeof values[0];
    values.resize(is_ok_ ? count : 0);
    for (auto& value : values) number(value);
  }
  bool has_read_all() const { return is_ok_ && place_ == bytes_.size(); }

 private:
  const Bytes& bytes_;
  size_t place_ = 0;
  bool is_ok_ = true;
};

// The same fields, in the same order, to be written and to be read.
template <typename Archive, typename Body>
void fields(Archive& archive, Body& body) {
  using Plain = std::remove_const_t<Body>;
  if constexpr (std::is_same_v<Plain, Join>) {
    archive.list(body.name);
  } else if constexpr (std::is_same_v<Plain, Dispatch>) {
    archive.number(body.number);
    archive.number(body.immediate);
    archive.number(body.step_us);
    archive.number(body.cache_page_count);
    archive.list(body.pages);
    archive.list(body.cache);
    archive.list(body.tail);
  } else if constexpr (!std::is_same_v<Plain, Leave>) {
    archive.number(body.number);
  }
}

template <typename Body>
std::optional<Message> read(Reader& reader) {
  Body body;
  fields(reader, body);
  return reader.has_read_all() ? std::optional<Message>(std::move(body)) : std::nullopt;
}

template <size_t... kKinds>
std::optional<Message> read(uint8_t kind, Reader& reader, std::index_sequence<kKinds...>) {
  std::optional<Message> message;
  ((kind == kKinds ? void(message = read<std::variant_alternative_t<kKinds, Message>>(reader))
                   : void()),
   ...);
  return message;
}

}  // namespace

Bytes to_bytes(const Message& message) {
  Writer writer;
  writer.number(static_cast<uint8_t>(message.index()));
  std::visit([&](const auto& body) { fields(writer, body); }, message);
  return writer.take();
}

std::optional<Message> to_message(const Bytes& bytes) {
  Reader reader(bytes);
  uint8_t kind = 0;
  reader.number(kind);
  return read(kind, reader, std::make_index_sequence<std::variant_size_v<Message>>());
}

braid::Status send(Fabric& fabric, Fabric::Peer peer, const Message& message) {
  const Bytes bytes = to_bytes(message);
  const auto end = steady_clock::now() + std::chrono::seconds(1);
  for (;;) {
    braid::Status sent = fabric.send(peer, bytes);
    if (sent.ok() || steady_clock::now() > end) return sent;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace kv_push
