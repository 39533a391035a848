#include "tools/numbers.h"

#include <string_view>

#include "base/units.h"

namespace braid::tools {
namespace {

std::string check_whole(const std::string& text) {
  int64_t number = 0;
  return CLI::detail::lexical_cast(text, number) ? "" : "'" + text + "' is not a whole number";
}

std::string check_count(const std::string& text) {
  uint64_t number = 0;
  const bool is_count = !text.starts_with('-') && CLI::detail::lexical_cast(text, number);
  return is_count ? "" : "'" + text + "' is not a whole number of 0 or more";
}

std::string check_number(const std::string& text) {
  return std::isnan(number_of(text)) ? "'" + text + "' is not a number" : "";
}

/// The type that CLI11 has found for the option's variable stands before the names of its checks.
bool is_of(const CLI::Option& option, std::string_view type) {
  const std::string text = option.get_type_name();
  return std::string_view(text).substr(0, text.find(':')) == type;
}

std::string read_size(std::string& text) {
  if (text.starts_with('-')) return "'" + text + "' is not 0 or more";
  std::string bytes = text;
  try {
    CLI::AsSizeValue read(false);
    if (read(bytes).empty()) {
      text = bytes;
      return "";
    }
  } catch (const CLI::ValidationError&) {
  }
  const Status refused = parse_size(text).status();
  return refused.ok() ? "" : refused.message();
}

}  // namespace

CLI::Option* as_size(CLI::Option* option) {
  if (const std::string bytes = option->get_default_str(); !bytes.empty())
    option->default_str(size_text(std::stoull(bytes)));
  return option->transform(CLI::Validator(read_size, CLI::AsSizeValue(false).get_description()));
}

void expect_numbers(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (option->get_items_expected_max() == 0) continue;  // a flag
    if (is_of(*option, "INT")) option->check(check_whole);
    if (is_of(*option, "UINT")) option->check(check_count);
    if (is_of(*option, "FLOAT")) option->check(check_number);
  }
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; }))
    expect_numbers(*command);
}

}  // namespace braid::tools
