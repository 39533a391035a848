// Numbers of the command line: CLI11 takes "-1" for a size of 2^64 - 1 bytes, and "nan" for a
// number of seconds, and the texts of its own ranges have hundreds of digits.
#pragma once

#include <fmt/core.h>

#include <CLI/CLI.hpp>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <type_traits>

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

/// Both ends are included.
template <typename Number>
CLI::Validator between(Number low, Number high) {
  const char* kind = std::is_integral_v<Number> ? "a whole number" : "a number";
  return {[=](std::string& text) {
            Number number{};
            const bool is_in =
                CLI::detail::lexical_cast(text, number) && number >= low && number <= high;
            return is_in ? std::string()
                         : fmt::format("'{}' is not {} from {} to {}", text, kind, low, high);
          },
          fmt::format("{} to {}", low, high)};
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

/// Bytes, as "64K" or "1G".
CLI::Option* as_size(CLI::Option* option);

/// What options that take numbers say of a word that is none, for all commands that have been
/// added: what other checks let through, CLI11 would tell in words of its own.
void expect_numbers(CLI::App& app);

}  // namespace braid::tools
