// Prints the table of options as docs/options.md shows it; check_options.py compares.
#include <cstdio>
#include <string>

#include "base/options.h"

int main() {
  std::printf("| variable | values | unit | default | meaning | why this default |\n");
  std::printf("|---|---|---|---|---|---|\n");
  for (const braid::OptionRow& row : braid::option_table()) {
    std::string values;  // a bar would end the cell
    for (const char* at = row.values; *at != '\0'; ++at)
      values += *at == '|' ? std::string(", ") : std::string(1, *at);
    std::printf("| `%s` | %s | %s | %s | %s | %s |\n", row.name, values.c_str(), row.unit,
                row.default_text, row.meaning, row.justification);
  }
}
