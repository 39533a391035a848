// Sockets of the directory: stream sockets that carry frames. The length of a frame is checked
// before memory is allocated. Descriptors are owned, and closed with their objects.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "host/addresses.h"
#include "host/file.h"
#include "transfer/codec.h"
#include "transfer/directory/names.h"
#include "transfer/directory/wait_end.h"

namespace braid::transfer {

/// Closed at the end.
using Descriptor = File;

/// Does not block. `port` 0: any; `port` then becomes the one that was taken.
Result<Descriptor> listen_at(const HostAndPort& at, uint16_t& port);
/// Replaces a socket that nobody listens at any more; a live one is an error. If several processes
/// want a path at once, one of them gets it. Removes the other sockets of the folder that nobody
/// listens at: their processes have ended without doing so.
Result<Descriptor> listen_at_path(const std::string& path);
/// Whether a process listens there, even one with a full queue of connections. Does not block. An
/// error: it cannot be seen, because this process may open no more descriptors, for example.
Result<bool> is_listened_at(const std::string& path);

/// Blocks until `end` at most. If `at` is a name and not an address, the C library looks it up, for
/// as long as its resolver takes.
Result<Descriptor> connect_to(const HostAndPort& at, WaitEnd end);
/// The same to a host that has been looked up.
Result<Descriptor> connect_to(const HostAndPort& at, const AddressList& addresses, WaitEnd end);
Result<Descriptor> connect_to_path(const std::string& path, uint64_t end_ns);
/// Whether that host says that nobody listens there. False, too, if it says nothing or is not
/// known.
bool is_refused(const HostAndPort& at, uint64_t end_ns);
/// Sends a frame, and waits for one of at most `bytes_max`.
Result<std::vector<std::byte>> ask(const Descriptor& socket, Bytes question, size_t bytes_max,
                                   uint64_t end_ns);

/// False: the time is over, or the kernel refuses.
enum class Awaited : uint8_t { kReading, kWriting };
bool wait_for(int socket, Awaited what, WaitEnd end);

/// A frame's length, in front of it: 4 bytes, little endian.
inline constexpr size_t kLengthBytes = 4;
uint32_t read_length(Bytes four);
std::vector<std::byte> frame(Bytes body);

}  // namespace braid::transfer
