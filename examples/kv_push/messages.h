// What prefillers and decoders tell each other (the paper's submit_send and submit_recvs).
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "model.h"

namespace kv_push {

/// Prefiller to decoder: it is here.
struct Join {
  std::string name;
};
/// Decoder to prefiller: where the pages and the tail of a request are to be written.
struct Dispatch {
  uint64_t number = 0;
  Fabric::Immediate immediate = 0;
  uint32_t step_us = 0;           // how long each step is to take
  uint32_t cache_page_count = 0;  // of the decoder's cache
  std::vector<uint32_t> pages;    // of it, the same in every layer
  Bytes cache;                    // descriptors
  Bytes tail;
};
/// Decoder to prefiller: write nothing more of it, and say so once nothing is under way.
struct Cancel {
  uint64_t number = 0;
};
/// Prefiller to decoder: no write of this dispatch is under way, and none comes.
struct CancelConfirmed {
  uint64_t number = 0;
};
/// Prefiller to decoder: dispatch nothing more, and disconnect once the rest is done.
struct Leave {};

using Message = std::variant<Join, Dispatch, Cancel, CancelConfirmed, Leave>;

Bytes to_bytes(const Message& message);
/// None: these bytes are no message of this program's.
std::optional<Message> to_message(const Bytes& bytes);

/// Waits until the peer has a buffer for it. An error: it has gone.
braid::Status send(Fabric& fabric, Fabric::Peer peer, const Message& message);

}  // namespace kv_push
