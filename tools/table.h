// Rows of cells, printed as columns.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace braid::tools {

/// A column whose cells are all empty is left out.
class Table {
 public:
  explicit Table(std::vector<std::string> head) { rows_.push_back(std::move(head)); }

  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

  /// `right`: columns whose cells stand at the right.
  /// `head`: with the first row.
  std::string print(const std::vector<size_t>& right, bool head = true) const {
    std::vector<size_t> widths(rows_.front().size(), 0);
    std::vector<bool> used(widths.size(), false);
    for (size_t row = head ? 0 : 1; row < rows_.size(); ++row)
      for (size_t column = 0; column < widths.size(); ++column) {
        widths[column] = std::max(widths[column], rows_[row][column].size());
        used[column] = used[column] || (row > 0 && !rows_[row][column].empty());
      }
    std::string text;
    for (size_t index = head ? 0 : 1; index < rows_.size(); ++index) {
      const auto& row = rows_[index];
      std::string line;
      for (size_t column = 0; column < row.size(); ++column) {
        if (!used[column]) continue;
        const bool at_right = std::find(right.begin(), right.end(), column) != right.end();
        line += at_right ? fmt::format("  {:>{}}", row[column], widths[column])
                         : fmt::format("  {:<{}}", row[column], widths[column]);
      }
      text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    }
    return text;
  }

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace braid::tools
