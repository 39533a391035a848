// The command line of `meanwhile`.
#pragma once

#include <vector>

#include "flow.h"

namespace meanwhile {

struct Choice {
  bool lists = false;
  bool prints_times = true;
  std::vector<std::string> names;  ///< parts of names, any of which must occur; none: everything
  std::string direction, thread, json;
  std::string after;  ///< "OPERATION GPU DIRECTION THREAD": begins behind that one
  int copies = 4;
  size_t size_bytes = size_t{256} << 20;
  double limit_ms = 10'000;

  bool takes(const std::string& name) const {
    for (const std::string& part : names)
      if (name.find(part) != std::string::npos) return true;
    return names.empty();
  }
};

constexpr char kUsage[] =
    "usage: meanwhile [--list] [--only NAME[,NAME...]] [--direction h2d|d2h] [--thread "
    "this|other]\n"
    "                 [--copies N] [--size BYTES] [--limit SECONDS] [--no-times] [--json FILE]\n"
    "                 [--after \"NAME target|relay h2d|d2h this|other\"]";

inline std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char letter : text) {
    if (letter == ',')
      parts.emplace_back();
    else
      parts.back() += letter;
  }
  return parts;
}

inline Choice read_choice(int argc, char** argv) {
  Choice choice;
  for (int at = 1; at < argc; ++at) {
    const std::string option = argv[at];
    if (option == "--list") {
      choice.lists = true;
    } else if (option == "--no-times") {
      choice.prints_times = false;
    } else {
      require(++at < argc, kUsage);
      const std::string value = argv[at];
      if (option == "--only")
        choice.names = split(value);
      else if (option == "--direction")
        choice.direction = value;
      else if (option == "--thread")
        choice.thread = value;
      else if (option == "--json")
        choice.json = value;
      else if (option == "--after")
        choice.after = value;
      else if (option == "--copies")
        choice.copies = std::atoi(value.c_str());
      else if (option == "--size")
        choice.size_bytes = std::strtoull(value.c_str(), nullptr, 10);
      else if (option == "--limit")
        choice.limit_ms = 1000 * std::atof(value.c_str());
      else
        fail(kUsage);
    }
  }
  require(choice.copies >= 2 && choice.size_bytes % sizeof(uint64_t) == 0 && choice.limit_ms > 0,
          kUsage);
  return choice;
}

}  // namespace meanwhile
