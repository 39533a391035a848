// One process writes into the memory of another, on the same host or on two (docs/fabric.md):
//
//   fabric_write own 10.0.0.7                     prints its address, and waits
//   fabric_write write 10.0.0.8 <that address>    on the other host
//
// The numbers are the addresses of each host's own network interface.
#include <braid/fabric.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace {

using braid::Fabric;
using std::chrono::seconds;

constexpr uint64_t kBytes = 256 << 20;

int fail(const braid::Status& status) {
  std::fprintf(stderr, "%s\n", status.message().c_str());
  return 1;
}

std::byte byte_at(uint64_t place) { return static_cast<std::byte>(place * 31 >> 9); }

std::string to_hex(const Fabric::ByteList& bytes) {
  std::string text;
  char digits[3];
  for (const std::byte byte : bytes) {
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(byte));
    text += digits;
  }
  return text;
}

braid::Result<Fabric::ByteList> from_hex(const std::string& text) {
  const std::string digits = "0123456789abcdef";
  if (text.empty() || text.size() % 2 != 0 || text.find_first_not_of(digits) != std::string::npos)
    return braid::Status::error("\"" + text + "\" is no address",
                                "Copy the whole one that the owner has printed");
  Fabric::ByteList bytes;
  for (size_t i = 0; i < text.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(digits.find(text[i]) * 16 + digits.find(text[i + 1])));
  return bytes;
}

/// Grants memory to whoever connects first, tells it so, and waits until all of it is written.
int own(Fabric& fabric, std::vector<std::byte>& memory) {
  const auto address = fabric.address();
  if (!address.ok()) return fail(address.status());
  std::printf("address %s\n", to_hex(address.value()).c_str());
  std::fflush(stdout);
  const auto peer = fabric.accept(seconds(120));
  if (!peer.ok() || !peer.value()) return fail(braid::Status::error("nobody has connected"));

  const auto region = fabric.add_region(memory.data(), memory.size());
  if (!region.ok()) return fail(region.status());
  const auto granted = fabric.grant(region.value(), *peer.value(), 0, memory.size());
  if (!granted.ok()) return fail(granted.status());
  const auto acquired = fabric.acquire_immediate();
  if (!acquired.ok()) return fail(acquired.status());
  const uint32_t immediate = acquired.value();
  Fabric::ByteList order(sizeof immediate);
  std::memcpy(order.data(), &immediate, sizeof immediate);
  for (const std::byte byte : granted.value().descriptor) order.push_back(byte);
  if (const auto sent = fabric.send(*peer.value(), order); !sent.ok()) return fail(sent);

  const uint64_t expected = Fabric::immediates_of_write(kBytes);
  const auto arrived = fabric.wait_count(immediate, expected, seconds(60));
  if (!arrived.ok() || arrived.value() != expected)
    return fail(braid::Status::error("the bytes have not come"));
  for (uint64_t i = 0; i < kBytes; ++i)
    if (memory[i] != byte_at(i)) return fail(braid::Status::error("wrong bytes"));
  std::printf("verified\n");
  const auto fence = fabric.revoke(granted.value().grant, seconds(5));
  if (!fence.ok() || fence.value() != Fabric::Fence::kFenced)
    return fail(braid::Status::error("the writer does not confirm that it writes no more"));
  const auto told = fabric.send(*peer.value(), Fabric::ByteList(1));
  return told.ok() ? 0 : fail(told);
}

int write(Fabric& fabric, std::vector<std::byte>& source, const std::string& address) {
  const auto where = from_hex(address);
  if (!where.ok()) return fail(where.status());
  const auto peer = fabric.connect(where.value(), seconds(10));
  if (!peer.ok()) return fail(peer.status());
  const auto order = fabric.receive(seconds(10));
  if (!order.ok() || !order.value()) return fail(braid::Status::error("no order has come"));
  const Fabric::ByteList& bytes = order.value()->bytes;
  uint32_t immediate = 0;
  if (bytes.size() < sizeof immediate)
    return fail(braid::Status::error("what has come is no order: it is too short"));
  std::memcpy(&immediate, bytes.data(), sizeof immediate);
  const auto target = fabric.open_target({bytes.begin() + sizeof immediate, bytes.end()});
  if (!target.ok()) return fail(target.status());

  for (uint64_t i = 0; i < kBytes; ++i) source[i] = byte_at(i);
  const auto region = fabric.add_region(source.data(), source.size());
  if (!region.ok()) return fail(region.status());
  const auto begin = std::chrono::steady_clock::now();
  const auto ticket =
      fabric.write(region.value(), target.value(), {0, 0, kBytes}, immediate, seconds(60));
  if (!ticket.ok()) return fail(ticket.status());
  const auto state = fabric.wait(ticket.value(), seconds(60));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  if (!state.ok() || state.value() != Fabric::TicketState::kDone)
    return fail(braid::Status::error("the write has failed"));
  std::printf("%.2f GB/s\n", static_cast<double>(kBytes) / took.count() / 1e9);
  // It stays until the owner has taken its memory back, and says so.
  const auto end = fabric.receive(seconds(60));
  return end.ok() && end.value() ? 0 : fail(braid::Status::error("the owner has gone"));
}

}  // namespace

int main(int count, char** words) {
  const std::string role = count > 2 ? words[1] : "";
  if (!(role == "own" && count == 3) && !(role == "write" && count == 4)) {
    std::fprintf(stderr, "usage: fabric_write own ADDRESS | write ADDRESS OWNER\n");
    return 2;
  }
  // It ends after the fabric: peers write into it and pending writes read it until then, also where
  // this program gives up early.
  std::vector<std::byte> memory(kBytes);
  Fabric::Options options;
  options.provider = "tcp;ofi_rxm";
  options.addresses = {words[2]};
  auto opened = Fabric::open(options);
  if (!opened.ok()) return fail(opened.status());
  Fabric fabric = std::move(opened).value();
  return role == "own" ? own(fabric, memory) : write(fabric, memory, words[3]);
}
