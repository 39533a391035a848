#include "driver_program.h"
#include "gate.h"

namespace program {

void prepare_gate() {}

void hold(CUstream stream, volatile uint32_t* word) {
  const auto address = reinterpret_cast<CUdeviceptr>(word);
  MUST(cuStreamWaitValue32(stream, address, 1, CU_STREAM_WAIT_VALUE_GEQ));
}

}  // namespace program
