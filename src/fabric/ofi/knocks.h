// Addresses that were given up as silent, and when they answer again. TCP alone would notice late:
// it sends the first packet of a connection again after a second, and what it had sent before the
// network broke at growing pauses. Until that comes, the peer still has the old connection, and
// rxm refuses a second one from the same process.
//
// So while a link to such an address is wanted, this class knocks there: it opens a TCP connection
// of its own, and another one soon if there is no answer. After an answer it resets the old
// connections, which tells the peer at once that they have ended, and ends the attempts that are
// still waiting for TCP, so that libfabric connects afresh. While no link is wanted, it keeps the
// old connections for some time only: the kernel goes on telling the peer of their end after that.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <vector>

#include "fabric/domain.h"
#include "host/file.h"

namespace braid::fabric::ofi {

class Knocks {
 public:
  /// `from`: the socket address of this side, whose host the knocks come from.
  explicit Knocks(Bytes from) : from_(from.begin(), from.end()) {}

  /// `connections` to the address were ended just now; the peer may not know it.
  void given_up(Bytes address, std::vector<File> connections);
  bool is_empty() const { return places_.empty(); }
  /// To be called often. `is_wanted`: a link to this address has not been given up.
  void look(uint64_t now_ns, const std::function<bool(const std::vector<std::byte>&)>& is_wanted);

 private:
  struct Place {
    std::vector<std::byte> address;
    std::vector<File> connections;  // ended ones
    File knock;
    uint64_t wanted_ns = 0;    // since when a link is wanted; 0: none is
    uint64_t unwanted_ns = 0;  // since when none is
    uint64_t knocked_ns = 0;
  };

  bool is_answered(Place& place, uint64_t now_ns) const;
  bool knock(Place& place) const;

  std::vector<std::byte> from_;
  std::list<Place> places_;
  uint64_t look_ns_ = 0;
};

}  // namespace braid::fabric::ofi
