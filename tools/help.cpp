#include "tools/help.h"

#include <memory>

namespace braid::tools {
namespace {

/// Empty: there is none. CLI11 writes lists in brackets.
std::string default_of(const CLI::Option& option) {
  std::string text = option.get_default_str();
  if (option.get_required()) return {};
  if (text.size() >= 2 && text.front() == '[' && text.back() == ']')
    text = text.substr(1, text.size() - 2);
  return text;
}

}  // namespace

/// CLI11 writes the default behind the type, where "[b, kb(=1024b), ...]=1073741824" is hard to
/// read.
std::string HelpFormatter::make_option_opts(const CLI::Option* option) const {
  std::string text = CLI::Formatter::make_option_opts(option);
  const std::string shown = "=" + option->get_default_str();
  const size_t at = shown.size() > 1 ? text.find(shown) : std::string::npos;
  return at == std::string::npos ? text : text.erase(at, shown.size());
}

std::string HelpFormatter::make_option_desc(const CLI::Option* option) const {
  const std::string value = default_of(*option);
  const std::string text = CLI::Formatter::make_option_desc(option);
  return value.empty() ? text : text + " (default: " + value + ")";
}

void show_defaults(CLI::App& app) {
  app.option_defaults()->always_capture_default();
  app.formatter(std::make_shared<HelpFormatter>());
}

}  // namespace braid::tools
