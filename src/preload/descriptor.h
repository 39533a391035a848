// Where braid's text goes inside a program: an open file descriptor, as a sink of TextWriter.
#pragma once

#include <cstddef>

namespace braid::preload {

/// Closed by whoever opened it.
struct Descriptor {
  int number = -1;
  bool failed = false;  ///< it refused to take something
};

/// A TextWriter's sink that writes to the Descriptor that `context` points to. Async-signal-safe.
void write_to_descriptor(void* context, const char* text, size_t size_bytes);

}  // namespace braid::preload
