#include "transfer/library/event_descriptor.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

namespace braid::transfer {

EventDescriptor::EventDescriptor() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void EventDescriptor::set(Source source, bool is_readable) {
  const std::lock_guard lock(mutex_);
  const bool was_readable = is_readable_[0] || is_readable_[1];
  is_readable_[static_cast<size_t>(source)] = is_readable;
  uint64_t count = 1;
  if (is_readable)  // again, if a program has read it itself
    (void)!write(event_.get(), &count, sizeof count);
  else if (was_readable && !is_readable_[0] && !is_readable_[1])
    (void)!read(event_.get(), &count, sizeof count);
}

}  // namespace braid::transfer
