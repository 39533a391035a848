// Calls of Exports that wait for their answers.
#pragma once

#include <cstdint>
#include <string>
#include <thread>

#include "transfer/exports.h"

namespace braid::transfer::test {

/// All that is being opened and closed.
inline void settle(Exports& exports) {
  while (exports.under_way() > 0)
    if (!exports.step()) std::this_thread::yield();
}

inline Cause open_now(Exports& exports, const std::string& path, Rights wanted, uint64_t& file,
                      uint64_t& size_bytes) {
  Cause answer = Cause::kFileError;
  exports.open({}, path, wanted, [&](Cause cause, uint64_t number, uint64_t its_bytes) {
    answer = cause;
    if (cause == Cause::kNone) file = number, size_bytes = its_bytes;
  });
  settle(exports);
  return answer;
}

inline Cause use_now(Exports& exports, uint64_t file, Rights right, OpenFilePointer& opened) {
  Cause answer = Cause::kFileError;
  exports.use({}, file, right, [&](Cause cause, const OpenFilePointer& its) {
    answer = cause;
    opened = its;
  });
  settle(exports);
  return answer;
}

}  // namespace braid::transfer::test
