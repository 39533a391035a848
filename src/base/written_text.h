// Text that a TextWriter writes into a string: where memory may be allocated.
#pragma once

#include <array>
#include <string>

#include "base/text_writer.h"

namespace braid {

/// What `write(out)` writes to a TextWriter.
template <typename Write>
std::string written_text(const Write& write) {
  std::string text;
  std::array<char, 1024> buffer;
  const auto append = [](void* context, const char* part, size_t size_bytes) {
    static_cast<std::string*>(context)->append(part, size_bytes);
  };
  {
    TextWriter out(buffer, append, &text);
    write(out);
  }
  return text;
}

}  // namespace braid
