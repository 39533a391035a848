// rotate: a small decoder whose requests do not fit on the GPU, served in four ways: with a cache
// in which they fit; in a smaller one by rotation over the GPU's own link, by rotation over every
// link, and by computing again what had to make room. The outputs are the same, bit for bit, or the
// exit code is 1.
//
//   rotate [--layers N] [--requests N] [--prompt TOKENS] [--output TOKENS] [--slots BLOCKS]
//          [--turn STEPS] [--json FILE]
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "server.h"

namespace rotate {
namespace {

struct Command {
  Load load;
  std::string json;  // a file's name; empty: none
};

[[noreturn]] void usage() {
  die("rotate [--layers N] [--requests N] [--prompt TOKENS] [--output TOKENS] [--slots BLOCKS] "
      "[--turn STEPS] [--json FILE]");
}

Command parse(int count, char** words) {
  Command command;
  Load& load = command.load;
  for (int i = 1; i < count; i += 2) {
    const std::string name = words[i];
    if (i + 1 == count) usage();
    if (name == "--json") {
      command.json = words[i + 1];
      continue;
    }
    uint32_t* number = name == "--layers"     ? &load.layers
                       : name == "--requests" ? &load.requests
                       : name == "--prompt"   ? &load.prompt_tokens
                       : name == "--output"   ? &load.output_tokens
                       : name == "--slots"    ? &load.gpu_slots
                       : name == "--turn"     ? &load.turn_steps
                                              : nullptr;
    if (number == nullptr || std::atoi(words[i + 1]) <= 0) usage();
    *number = static_cast<uint32_t>(std::atoi(words[i + 1]));
  }
  return command;
}

struct Way {
  const char* name;
  Served served;
  double tokens_per_s;
  bool is_equal;  // to the first way's tokens, bit for bit
};

double mb(uint64_t bytes) { return static_cast<double>(bytes) / 1e6; }

void print(const Way& way) {
  const Served& served = way.served;
  std::printf("%-22s %8.3f s, %9.0f tokens/s, %6llu steps, %8llu tokens computed, ", way.name,
              served.seconds, way.tokens_per_s, static_cast<unsigned long long>(served.steps),
              static_cast<unsigned long long>(served.computed_tokens));
  std::printf("%8.1f MB down, %8.1f MB up, %8.1f MB over several links: %s\n",
              mb(served.down_bytes), mb(served.up_bytes), mb(served.several_links_bytes),
              way.is_equal ? "equal" : "DIFFERENT");
  std::fflush(stdout);
}

void write_json(const std::string& name, const std::vector<Way>& ways) {
  std::ofstream file(name);
  file << "[\n";
  for (const Way& way : ways) {
    const Served& served = way.served;
    file << " {\"way\": \"" << way.name << "\", \"seconds\": " << served.seconds
         << ", \"tokens_per_s\": " << way.tokens_per_s << ", \"steps\": " << served.steps
         << ", \"computed_tokens\": " << served.computed_tokens
         << ", \"down_bytes\": " << served.down_bytes << ", \"up_bytes\": " << served.up_bytes
         << ", \"several_links_bytes\": " << served.several_links_bytes
         << ", \"is_equal\": " << (way.is_equal ? "true" : "false") << "}"
         << (&way == &ways.back() ? "\n" : ",\n");
  }
  file << "]\n";
  if (!file.flush()) die("cannot write " + name);
}

int run(const Command& command) {
  Gpu gpu;
  auto engine = braid::Engine::open();
  if (!engine.ok()) die(engine.status().message());
  const Load& load = command.load;
  Load all_fit = load;
  all_fit.gpu_slots =
      load.requests * ((load.prompt_tokens + load.output_tokens) / kBlockTokens + 4);
  std::vector<Way> ways;
  using Preemption = Server::Preemption;
  const auto serve = [&](const char* name, const Load& wanted, Preemption preemption,
                         braid::Engine* copies) {
    Served served = Server(gpu, wanted, preemption, copies).serve();
    const bool is_equal = ways.empty() || served.tokens == ways.front().served.tokens;
    const double tokens = static_cast<double>(load.requests) * load.output_tokens;
    ways.push_back({name, served, tokens / served.seconds, is_equal});
    print(ways.back());
    return is_equal;
  };
  bool is_equal = serve("all fit", all_fit, Preemption::kRotates, nullptr);
  is_equal &= serve("rotation, one link", load, Preemption::kRotates, nullptr);
  is_equal &= serve("rotation, every link", load, Preemption::kRotates, &engine.value());
  is_equal &= serve("recomputation", load, Preemption::kRecomputes, nullptr);
  std::printf(is_equal ? "outputs are equal bit for bit\n" : "OUTPUTS DIFFER\n");
  if (!command.json.empty()) write_json(command.json, ways);
  return is_equal ? 0 : 1;
}

}  // namespace
}  // namespace rotate

int main(int count, char** words) { return rotate::run(rotate::parse(count, words)); }
