#include "base/program_name.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

namespace braid {

std::string_view program_name(char (&buffer)[16]) noexcept {
  if (*program_invocation_short_name != '\0') return program_invocation_short_name;
  const int file = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
  const ssize_t size = read(file, buffer, sizeof buffer);
  close(file);
  return {buffer, size > 0 ? static_cast<size_t>(size) - 1 : 0};  // without the end of the line
}

}  // namespace braid
