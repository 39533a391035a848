#include "transfer/sharing/mapping.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "fabric/local/socket.h"
#include "host/random_number.h"
#include "transfer/directory/socket.h"
#include "transfer/sharing/messages.h"

namespace braid::transfer {
namespace {

using fabric::local::Packet;
using fabric::local::Socket;

/// Whether this process can see when the other one has ended (fabric/processes.h).
bool is_seen(const fabric::Origin& here, const fabric::Origin& there) {
  return here.boot == there.boot && here.boot != decltype(here.boot){} &&
         here.pid_namespace == there.pid_namespace && here.pid_namespace != 0;
}

class Asker {
 public:
  Asker(Socket socket, const fabric::Secret& secret, uint64_t end_ns)
      : socket_(std::move(socket)), secret_(secret), end_ns_(end_ns) {}

  bool is_challenged() {
    const std::optional<Packet> packet = receive();
    if (!packet || packet->bytes.size() != kChallengeBytes) return false;
    std::memcpy(&question_.challenge, packet->bytes.data(), kChallengeBytes);
    return true;
  }
  struct Told {
    SharedMemory memory;
    File file;
  };
  std::optional<Told> ask(bool wants_board, uint64_t after) {
    question_.nonce = random_number();
    question_.wants_board = wants_board;
    question_.after = after;
    if (!socket_.send(encode(question_, secret_))) return std::nullopt;
    std::optional<Packet> packet = receive();
    if (!packet) return std::nullopt;
    const auto answer = decode_memory_answer(packet->bytes, secret_);
    if (!answer || answer->nonce != question_.nonce) return std::nullopt;
    return Told{answer->memory, std::move(packet->file)};
  }

 private:
  std::optional<Packet> receive() {
    for (;;) {
      std::optional<Packet> packet = socket_.receive();
      if (packet || socket_.is_closed()) return packet;
      if (!wait_for(socket_.descriptor(), Awaited::kReading, end_ns_)) return std::nullopt;
    }
  }

  Socket socket_;
  const fabric::Secret& secret_;
  uint64_t end_ns_;
  MemoryQuestion question_;
};

bool is_described(const SharedMemory& memory, const Description& owner) {
  return std::any_of(owner.ranges.begin(), owner.ranges.end(), [&](const RangeDescription& range) {
    return range.address == memory.address && range.size_bytes == memory.size_bytes &&
           range.rights == memory.rights;
  });
}

/// Maps the owner's board. Null: the owner shows none that this process can trust.
std::shared_ptr<const MappedPages> map_board(Asker& asker) {
  const std::optional<Asker::Told> shown = asker.ask(true, 0);
  if (!shown) return nullptr;
  Result<MappedPages> pages = map_shared_pages(shown->file, 0, sizeof(Board), false);
  return pages.ok() ? std::make_shared<const MappedPages>(std::move(pages).value()) : nullptr;
}

std::optional<MappedRange> map(const Asker::Told& told, const Description& owner,
                               const std::shared_ptr<const MappedPages>& board) {
  const SharedMemory& memory = told.memory;
  if (memory.slot >= kSharedMax || !Sharing::can_share(memory.rights) ||
      !is_described(memory, owner))
    return std::nullopt;
  Result<MappedPages> pages =
      map_shared_pages(told.file, 0, memory.size_bytes, (memory.rights & kMayWrite) != 0);
  if (!pages.ok()) return std::nullopt;
  return MappedRange(memory, std::move(pages).value(), board);
}

}  // namespace

MappedMemory map_memory_of(const Description& owner, const fabric::Origin& self,
                           const fabric::Secret& secret, uint64_t end_ns) {
  MappedMemory mapped;
  if (!is_seen(self, owner.origin)) return mapped;
  Result<std::optional<Socket>> socket = Socket::connect(sharing_socket(owner.incarnation));
  if (!socket.ok() || !socket.value()) return mapped;
  Asker asker(*std::move(socket).value(), secret, end_ns);
  const std::shared_ptr<const MappedPages> board =
      asker.is_challenged() ? map_board(asker) : nullptr;
  uint64_t after = 0;
  for (size_t i = 0; board != nullptr && i < kSharedMax; ++i) {
    const std::optional<Asker::Told> told = asker.ask(false, after);
    if (told && told->memory.buffer == 0) return mapped;
    if (!told || told->memory.buffer <= after) break;
    after = told->memory.buffer;
    std::optional<MappedRange> range = map(*told, owner, board);
    mapped.refused += range ? 0 : 1;
    if (range) mapped.ranges.push_back(std::move(*range));
  }
  if (mapped.ranges.size() + mapped.refused < kSharedMax) ++mapped.refused;  // the rest
  return mapped;
}

}  // namespace braid::transfer
