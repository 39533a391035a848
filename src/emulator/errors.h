// CUDA's error codes, their names and their words.
#pragma once

#include <cuda.h>

#include <string_view>

namespace braid::emulator {

/// "CUDA_ERROR_OUT_OF_MEMORY"; null for a code that CUDA does not have.
const char* error_name(CUresult code);
/// "out of memory"; null for a code that CUDA does not have.
const char* error_words(CUresult code);
/// CUDA_SUCCESS if there is no such error.
CUresult error_by_name(std::string_view name);

/// One line on stderr, beginning "braid emulator: ".
void say(std::string_view line);

}  // namespace braid::emulator
