// The library in the process that is written to: Fabric of include/braid/fabric.h, with the thread
// of its own. What the other side needs to know goes in messages, as in a program.
#pragma once

#include <span>
#include <vector>

#include "braid/fabric.h"

namespace braid::bench {

/// At 127.0.0.1, 127.0.0.2 and so on. If it cannot be opened, this says why and ends the process.
Fabric open_fabric(const char* provider, int rails);

/// What a member tells the one that writes; the descriptor of its memory follows.
struct Invitation {
  Fabric::Immediate written = 0, barrier = 0;
};

/// In the process that is written to: a member of the group.
class LibraryOwner {
 public:
  LibraryOwner(const char* provider, int rails) : fabric_(open_fabric(provider, rails)) {}

  std::vector<std::byte> address() { return fabric_.address().value(); }
  /// Lets whoever connects write to the memory. Waits for it to connect, and for its message.
  void grant(std::span<std::byte> memory);
  /// Lets writes arrive, and blocks for a moment.
  void look();
  void begin_barrier();
  void end_barrier();

 private:
  Fabric fabric_;
  Fabric::Immediate written_ = 0;
  Fabric::Group group_{};
  Fabric::Ticket barrier_{};
};

}  // namespace braid::bench
