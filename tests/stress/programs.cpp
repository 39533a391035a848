// stress_programs SEED COUNT [--trace]: runs the programs of COUNT seeds from SEED on, with
// whatever driver the loader finds, and writes a line for each (execution.h). A hang is the
// caller's to notice.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "stress/calls.h"
#include "stress/execution.h"
#include "stress/program.h"

int main(int count, char** words) {
  using namespace braid::stress;
  const bool traces = count == 4 && std::strcmp(words[3], "--trace") == 0;
  if (count != 3 && !traces) {
    std::fprintf(stderr, "usage: stress_programs SEED COUNT [--trace]\n");
    return 2;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  uint64_t seed = std::strtoull(words[1], nullptr, 10);
  const uint64_t end = seed + std::strtoull(words[2], nullptr, 10);
  try {
    const Calls calls = open_calls();
    const Machine machine = machine_of(calls);
    Runner runner(calls, machine.gpus, traces);
    for (; seed < end; ++seed) std::printf("%s\n", runner.run(make_program(seed, machine)).c_str());
  } catch (const std::exception& trouble) {
    std::fprintf(stderr, "program %llu: %s\n", static_cast<unsigned long long>(seed),
                 trouble.what());
    std::fflush(stdout);
    std::_Exit(1);
  }
  return 0;
}
