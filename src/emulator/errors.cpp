#include "emulator/errors.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <string>

namespace braid::emulator {
namespace {

struct Error {
  CUresult code;
  const char* name;
  std::string words;
};

// The driver's own words where programs are known to show them; else the name, in small letters.
const std::map<CUresult, const char*>& known_words() {
  static const auto* words = new std::map<CUresult, const char*>{
      {CUDA_SUCCESS, "no error"},
      {CUDA_ERROR_INVALID_VALUE, "invalid argument"},
      {CUDA_ERROR_NOT_INITIALIZED, "initialization error"},
      {CUDA_ERROR_DEINITIALIZED, "driver shutting down"},
      {CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"},
      {CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"},
      {CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"},
      {CUDA_ERROR_INVALID_CONTEXT, "invalid device context"},
      {CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"},
      {CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"},
      {CUDA_ERROR_NOT_FOUND, "named symbol not found"},
      {CUDA_ERROR_NOT_READY, "device not ready"},
      {CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"},
      {CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"},
      {CUDA_ERROR_PEER_ACCESS_UNSUPPORTED,
       "peer access is not supported between these two devices"},
      {CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled"},
      {CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "peer access has not been enabled"},
      {CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"},
      {CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
       "part or all of the requested memory range is already mapped"},
      {CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
       "pointer does not correspond to a registered memory region"},
      {CUDA_ERROR_NOT_PERMITTED, "operation not permitted"},
      {CUDA_ERROR_NOT_SUPPORTED, "operation not supported"},
      {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"},
      {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
       "operation failed due to a previous error during capture"},
      {CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
       "operation would make the legacy stream depend on a capturing blocking stream"},
      {CUDA_ERROR_UNKNOWN, "unknown error"},
  };
  return *words;
}

std::string words_for(CUresult code, std::string_view name) {
  if (const auto known = known_words().find(code); known != known_words().end())
    return known->second;
  constexpr std::string_view kPrefix = "CUDA_ERROR_";
  std::string words(name.substr(std::min(kPrefix.size(), name.size())));
  for (char& letter : words) letter = letter == '_' ? ' ' : static_cast<char>(std::tolower(letter));
  return words;
}

std::map<CUresult, Error> make_errors() {
  std::map<CUresult, Error> all;
#define BRAID_ERROR(name) all.emplace(name, Error{name, #name, words_for(name, #name)});
#include "cuda_errors.inc"
#undef BRAID_ERROR
  return all;
}

const std::map<CUresult, Error>& errors() {
  static const auto* table = new std::map<CUresult, Error>(make_errors());
  return *table;
}

const Error* find(CUresult code) {
  const auto found = errors().find(code);
  return found == errors().end() ? nullptr : &found->second;
}

}  // namespace

const char* error_name(CUresult code) {
  const Error* error = find(code);
  return error != nullptr ? error->name : nullptr;
}

const char* error_words(CUresult code) {
  const Error* error = find(code);
  return error != nullptr ? error->words.c_str() : nullptr;
}

CUresult error_by_name(std::string_view name) {
  for (const auto& [code, error] : errors())
    if (error.name == name) return code;
  return CUDA_SUCCESS;
}

void say(std::string_view line) {
  const std::string text = "braid emulator: " + std::string(line) + "\n";
  // One write, so that lines of several threads do not mix. Nothing can be done if it fails.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace braid::emulator
