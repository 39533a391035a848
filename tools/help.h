// What --help says of every option: its default, too.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

namespace braid::tools {

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_option_desc(const CLI::Option* option) const override;
};

/// For the program and the commands that are added to it later. An option without a default, or
/// whose text says more about it, has an empty `default_str`.
void show_defaults(CLI::App& app);

}  // namespace braid::tools
