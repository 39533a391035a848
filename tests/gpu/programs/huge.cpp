// Copies of more bytes than 32 bits count, there and back.
//   huge SIZE_BYTES
#include "driver_program.h"

using namespace program;

int main(int argc, char** argv) {
  const size_t size_bytes = size_argument(argc, argv);
  use_gpus(1);
  const Pattern pattern(1);
  const CUstream stream = new_stream();
  const TripBuffers buffers = make_buffers(size_bytes, pattern);
  there_and_back(buffers, size_bytes, stream);
  MUST(cuStreamSynchronize(stream));
  pattern.check(buffers.landing, size_bytes, "a huge copy");
  print_counts();
  return 0;
}
