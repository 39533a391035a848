#include "library/settings.h"

#include <algorithm>
#include <cstdlib>
#include <span>
#include <string_view>

#include "base/sized_struct.h"

namespace braid::library {
namespace {

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
  braid_options own{};
  if (const Status wrong = read_sized(given, "braid_options", own); !wrong.ok())
    return Error::from(wrong, BRAID_ERROR_ARGUMENT);
  if (own.count > 0 && own.options == nullptr)
    return Error::argument("braid_options: a count without options");
  const std::span<const braid_option> rows(own.options, own.count);
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
