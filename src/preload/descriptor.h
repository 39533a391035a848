// An open file descriptor for braid's text inside a program, as a sink of TextWriter.
#pragma once

#include <cstddef>

namespace braid::preload {

/// The opener of the descriptor closes it.
struct Descriptor {
  int number = -1;
  bool failed = false;  ///< a write has failed
};

/// A TextWriter's sink that writes to the Descriptor that `context` points to. Async-signal-safe.
void write_to_descriptor(void* context, const char* text, size_t size_bytes);

}  // namespace braid::preload
