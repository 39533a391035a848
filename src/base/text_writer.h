// Writes text through a buffer of the caller: no allocation, no locale, no exception, so a signal
// handler may use it. A full buffer goes to the sink, and so does the rest at the end. If the
// buffer is large enough, a text is one write.
//
// One thread at a time.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace braid {

class TextWriter {
 public:
  using Sink = void (*)(void* context, const char* text, size_t size_bytes);

  /// `buffer` and `context` must outlive the writer. `buffer` is not empty.
  TextWriter(std::span<char> buffer, Sink sink, void* context)
      : buffer_(buffer), sink_(sink), context_(context) {}
  ~TextWriter() { flush(); }
  TextWriter(const TextWriter&) = delete;
  TextWriter& operator=(const TextWriter&) = delete;

  TextWriter& operator<<(std::string_view text);
  TextWriter& operator<<(std::integral auto number) {
    return number < 0 ? *this << "-" << Magnitude{0 - static_cast<uint64_t>(number)}
                      : *this << Magnitude{static_cast<uint64_t>(number)};
  }

  TextWriter& hex(uint64_t number);                  ///< "0x7f"
  TextWriter& right(uint64_t number, size_t width);  ///< padded on the left
  TextWriter& right(std::string_view text, size_t width);
  /// Spaces up to this column of the line, at least one.
  TextWriter& tab(size_t column);

  void flush();

 private:
  struct Magnitude {
    uint64_t value;
  };
  TextWriter& operator<<(Magnitude number);

  std::span<char> buffer_;
  Sink sink_;
  void* context_;
  size_t used_ = 0;
  size_t column_ = 0;
};

}  // namespace braid
