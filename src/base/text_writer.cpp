#include "base/text_writer.h"

#include <algorithm>
#include <charconv>
#include <cstring>

namespace braid {
namespace {

constexpr size_t kDigits = 20;  // of the largest uint64_t

std::string_view to_digits(uint64_t number, int base, std::span<char, kDigits> place) {
  const auto end = std::to_chars(place.data(), place.data() + place.size(), number, base).ptr;
  return {place.data(), static_cast<size_t>(end - place.data())};
}

}  // namespace

TextWriter& TextWriter::operator<<(std::string_view text) {
  const size_t newline = text.rfind('\n');
  column_ = newline == text.npos ? column_ + text.size() : text.size() - newline - 1;
  while (!text.empty()) {
    if (used_ == buffer_.size()) flush();
    const size_t part = std::min(text.size(), buffer_.size() - used_);
    std::memcpy(buffer_.data() + used_, text.data(), part);
    used_ += part;
    text.remove_prefix(part);
  }
  return *this;
}

TextWriter& TextWriter::operator<<(Magnitude number) {
  char digits[kDigits];
  return *this << to_digits(number.value, 10, digits);
}

TextWriter& TextWriter::hex(uint64_t number) {
  char digits[kDigits];
  return *this << "0x" << to_digits(number, 16, digits);
}

TextWriter& TextWriter::right(uint64_t number, size_t width) {
  char digits[kDigits];
  return right(to_digits(number, 10, digits), width);
}

TextWriter& TextWriter::right(std::string_view text, size_t width) {
  for (size_t size = text.size(); size < width; ++size) *this << " ";
  return *this << text;
}

TextWriter& TextWriter::tab(size_t column) {
  do *this << " ";
  while (column_ < column);
  return *this;
}

void TextWriter::flush() {
  if (used_ != 0) sink_(context_, buffer_.data(), used_);
  used_ = 0;
}

}  // namespace braid
