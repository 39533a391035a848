// A table that is shown again and again, until it is interrupted; and the same as JSON.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include <CLI/CLI.hpp>

#include "base/status.h"

namespace braid::tools {

struct ViewOptions {
  bool is_watched = false;
  double interval_s = 1;
  int count = 0;  ///< refreshes; 0: until it is interrupted
  std::string json_file;
};

/// What is shown, in both forms.
struct View {
  std::string text;
  nlohmann::ordered_json json;
};

std::shared_ptr<ViewOptions> add_view_options(CLI::App& command);

/// Shows it once, or refreshes it; the exit code. On a terminal each view replaces the one before.
/// The JSON file has the latest one.
int show(const ViewOptions& options, const std::function<Result<View>()>& look);

}  // namespace braid::tools
