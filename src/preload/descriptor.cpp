#include "preload/descriptor.h"

#include <unistd.h>

#include <cerrno>

namespace braid::preload {

void write_to_descriptor(void* context, const char* text, size_t size_bytes) {
  auto& descriptor = *static_cast<Descriptor*>(context);
  while (size_bytes > 0) {
    const ssize_t written = write(descriptor.number, text, size_bytes);
    if (written < 0 && errno == EINTR) continue;
    descriptor.failed = descriptor.failed || written <= 0;
    if (written <= 0) return;
    text += written;
    size_bytes -= static_cast<size_t>(written);
  }
}

}  // namespace braid::preload
