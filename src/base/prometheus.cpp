#include "base/prometheus.h"

namespace braid {

void write_escaped(std::string_view text, TextWriter& out) {
  for (const char& letter : text) {
    if (letter == '\\' || letter == '"') out << "\\";
    out << (letter == '\n' ? std::string_view("\\n") : std::string_view(&letter, 1));
  }
}

void write_head(std::string_view name, std::string_view type, std::string_view help,
                TextWriter& out) {
  out << "# HELP " << name << " " << help << "\n# TYPE " << name << " " << type << "\n";
}

}  // namespace braid
