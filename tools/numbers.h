// Numbers of the command line: CLI11 takes "-1" for a size of 2^64 - 1 bytes, and "nan" for a
// number of seconds, and the texts of its own ranges have hundreds of digits.
#pragma once

#include <CLI/CLI.hpp>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace braid::tools {

/// NaN, which is in no range, for what is no number or not finite.
inline double number_of(const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  return end != text.c_str() && *end == '\0' && std::isfinite(number) ? number : std::nan("");
}

inline CLI::Validator above_zero() {
  return {[](std::string& text) {
            return number_of(text) > 0 ? std::string() : "'" + text + "' is not a number above 0";
          },
          "POSITIVE"};
}

inline CLI::Validator zero_or_more() {
  return {[](std::string& text) {
            return number_of(text) >= 0 ? std::string() : "'" + text + "' is not 0 or more";
          },
          "NONNEGATIVE"};
}

/// The shortest text that `as_size` reads: "64K", "1G".
inline std::string size_text(uint64_t bytes) {
  std::string suffix;
  for (const char* next : {"K", "M", "G", "T"}) {
    if (bytes == 0 || bytes % 1024 != 0) break;
    bytes /= 1024;
    suffix = next;
  }
  return std::to_string(bytes) + suffix;
}

/// Bytes, as "64K" or "1G". What is added later as a transformation comes first.
inline CLI::Option* as_size(CLI::Option* option) {
  const auto refuse_negative = [](std::string& text) {
    return text.starts_with('-') ? "'" + text + "' is not 0 or more" : std::string();
  };
  if (const std::string bytes = option->get_default_str(); !bytes.empty())
    option->default_str(size_text(std::stoull(bytes)));
  return option->transform(CLI::AsSizeValue(false))->transform(CLI::Validator(refuse_negative, ""));
}

}  // namespace braid::tools
