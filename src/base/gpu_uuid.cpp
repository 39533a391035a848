#include "base/gpu_uuid.h"

namespace braid {

std::string format_gpu_uuid(std::span<const char, 16> bytes) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text = "GPU-";
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    const auto byte = static_cast<unsigned char>(bytes[i]);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

bool names_gpu(std::string_view text, std::string_view uuid) {
  return text.starts_with("GPU-") && uuid.starts_with(text);
}

}  // namespace braid
