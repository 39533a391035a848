// Names on the command line.
#pragma once

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace braid::tools {

/// The names of rows of a table.
template <typename Rows>
std::vector<std::string> names_of(const Rows& rows) {
  std::vector<std::string> names;
  for (const auto& row : rows) names.emplace_back(row.name);
  return names;
}

/// `kind` is what they name, in the error, which lists them: "figure".
inline CLI::Validator one_of(const std::string& kind, std::vector<std::string> names) {
  return {[kind, names = std::move(names)](std::string& name) {
            if (std::find(names.begin(), names.end(), name) != names.end()) return std::string();
            return fmt::format("there is no {} '{}'. Choose one of {}", kind, name,
                               fmt::join(names, ", "));
          },
          ""};
}

}  // namespace braid::tools
