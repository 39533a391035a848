// Prints the table of options as docs/options.md shows it; check_options.py compares.
#include <cstdio>

#include "base/options.h"

int main() {
  std::printf("| variable | unit | default | meaning | why this default |\n");
  std::printf("|---|---|---|---|---|\n");
  for (const braid::OptionRow& row : braid::option_table())
    std::printf("| `%s` | %s | %s | %s | %s |\n", row.name, row.unit, row.default_text, row.meaning,
                row.justification);
}
