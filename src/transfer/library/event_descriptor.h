// One descriptor for poll, epoll and asyncio that tells of several things.
#pragma once

#include <array>
#include <mutex>

#include "host/file.h"

namespace braid::transfer {

/// Readable while one of its sources is. May be used by several threads at once.
class EventDescriptor {
 public:
  enum class Source { kBatches, kNotifications };

  EventDescriptor();
  /// Negative: the system has none left.
  int get() const { return event_.get(); }
  void set(Source source, bool is_readable);

 private:
  std::mutex mutex_;
  std::array<bool, 2> is_readable_{};
  File event_;  // an eventfd
};

}  // namespace braid::transfer
