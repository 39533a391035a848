// rotate: a small decoder whose requests do not fit on the GPU, served in four ways: with a cache
// in which they fit; in a smaller one by rotation over the GPU's own link, by rotation over every
// link, and by computing again what had to make room. The outputs are the same, bit for bit.
//
//   rotate [--layers N] [--requests N] [--prompt TOKENS] [--output TOKENS] [--slots BLOCKS]
//          [--turn STEPS]
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "server.h"

namespace rotate {
namespace {

Load parse(int count, char** words) {
  Load load;
  for (int i = 1; i < count; i += 2) {
    const std::string name = words[i];
    uint32_t* number = name == "--layers"     ? &load.layers
                       : name == "--requests" ? &load.requests
                       : name == "--prompt"   ? &load.prompt_tokens
                       : name == "--output"   ? &load.output_tokens
                       : name == "--slots"    ? &load.gpu_slots
                       : name == "--turn"     ? &load.turn_steps
                                              : nullptr;
    if (number == nullptr || i + 1 == count || std::atoi(words[i + 1]) <= 0)
      die("rotate [--layers N] [--requests N] [--prompt TOKENS] [--output TOKENS] "
          "[--slots BLOCKS] [--turn STEPS]");
    *number = static_cast<uint32_t>(std::atoi(words[i + 1]));
  }
  return load;
}

bool report(const char* name, const Served& served, const Served& reference) {
  const bool is_equal = served.tokens == reference.tokens;
  std::printf("%-22s %6llu steps, %8llu tokens computed, %7.1f MB down, %7.1f MB up, %.3f s: %s\n",
              name, static_cast<unsigned long long>(served.steps),
              static_cast<unsigned long long>(served.computed_tokens),
              static_cast<double>(served.down_bytes) / 1e6,
              static_cast<double>(served.up_bytes) / 1e6, served.seconds,
              is_equal ? "equal" : "DIFFERENT");
  return is_equal;
}

int run(const Load& load) {
  Gpu gpu;
  auto engine = braid::Engine::open();
  if (!engine.ok()) die(engine.status().message());
  Load all_fit = load;
  all_fit.gpu_slots =
      load.requests * ((load.prompt_tokens + load.output_tokens) / kBlockTokens + 4);
  using Preemption = Server::Preemption;
  const auto serve = [&](const Load& wanted, Preemption preemption, braid::Engine* copies) {
    return Server(gpu, wanted, preemption, copies).serve();
  };
  const Served reference = serve(all_fit, Preemption::kRotates, nullptr);
  report("all fit", reference, reference);
  bool is_equal =
      report("rotation, one link", serve(load, Preemption::kRotates, nullptr), reference);
  is_equal &=
      report("rotation, every link", serve(load, Preemption::kRotates, &engine.value()), reference);
  is_equal &= report("recomputation", serve(load, Preemption::kRecomputes, nullptr), reference);
  std::printf(is_equal ? "outputs are equal bit for bit\n" : "OUTPUTS DIFFER\n");
  return is_equal ? 0 : 1;
}

}  // namespace
}  // namespace rotate

int main(int count, char** words) { return rotate::run(rotate::parse(count, words)); }
