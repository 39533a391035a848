// What the test of two processes and its other process share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace braid::fabric::test {

/// Comes before the descriptor in a message.
struct Order {
  uint32_t writes = 0;
  uint32_t immediate = 0;
  uint64_t size_bytes = 0;
};

/// Recorded: engine 0x1122334455667788 at place 7 of a simulated network says hello to engine 42.
inline const std::string kHelloOfVersion1 =
    "4252464201001088776655443322112a00000000000000887766554433221100000800000000000010000000000000"
    "0"
    "100090073696d756c617465640800070000000000000000100000000000008967452301efcdab03000000";

inline std::string to_hex(const std::vector<std::byte>& bytes) {
  static const char digits[] = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : bytes) {
    text += digits[static_cast<int>(byte) >> 4];
    text += digits[static_cast<int>(byte) & 15];
  }
  return text;
}

inline std::vector<std::byte> from_hex(const std::string& text) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::stoi(text.substr(i, 2), nullptr, 16)));
  return bytes;
}

}  // namespace braid::fabric::test
