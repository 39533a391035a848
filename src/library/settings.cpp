#include "library/settings.h"

#include <algorithm>
#include <cstdlib>
#include <span>
#include <string_view>

namespace braid::library {
namespace {

// A newer caller's struct is longer; its new fields, left at zero, ask for nothing.
Error check_size(const braid_options& given) {
  const size_t known_bytes = sizeof(braid_options);
  if (given.struct_bytes < known_bytes)
    return Error::argument("braid_options: struct_bytes is " + std::to_string(given.struct_bytes) +
                           ". Set it to sizeof(braid_options)");
  const auto* bytes = reinterpret_cast<const unsigned char*>(&given);
  if (std::any_of(bytes + known_bytes, bytes + given.struct_bytes,
                  [](unsigned char byte) { return byte != 0; }))
    return Error::argument(
        "braid_options: the program sets fields that this libbraid.so, of version " BRAID_VERSION
        ", does not know. Install the version that the program was built with");
  return Error::none();
}

bool is_option(std::string_view name) {
  return std::any_of(option_table().begin(), option_table().end(),
                     [&](const OptionRow& row) { return row.name == name; });
}

Error check_names(std::span<const braid_option> rows) {
  for (const braid_option& row : rows) {
    if (row.name == nullptr || row.value == nullptr)
      return Error::argument("braid_options: an option without a name or a value");
    if (is_option(row.name)) continue;
    std::string known;
    for (const OptionRow& option : option_table()) known += std::string(" ") + option.name;
    return {BRAID_ERROR_OPTION,
            std::string("there is no option '") + row.name + "'. There are:" + known, 0};
  }
  return Error::none();
}

}  // namespace

Error read_settings(const braid_options* given, Options& options) {
  std::span<const braid_option> rows;
  if (given != nullptr) {
    if (Error wrong = check_size(*given); !wrong.ok()) return wrong;
    if (given->count > 0 && given->options == nullptr)
      return Error::argument("braid_options: a count without options");
    rows = {given->options, given->count};
  }
  if (Error wrong = check_names(rows); !wrong.ok()) return wrong;
  auto read = read_options([&](const char* name) -> const char* {
    for (const braid_option& row : rows)
      if (std::string_view(row.name) == name) return row.value;
    const char* text = std::getenv(name);
    // Who calls braid_open expects an engine that is open when it returns.
    return text == nullptr && std::string_view(name) == "BRAID_OPENING" ? "wait" : text;
  });
  if (!read.ok()) return Error::from(read.status(), BRAID_ERROR_OPTION);
  options = std::move(read).value();
  return Error::none();
}

}  // namespace braid::library
