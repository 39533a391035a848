// One process reads and writes the memory of another, on the same host or on two
// (docs/transfer.md):
//
//   transfer own                                    prints its name, and waits
//   transfer use braid://127.0.0.1:40000/5f3c...    that name, in another shell
//
// On two hosts: `transfer own 10.0.0.7:4750`, and `transfer use NAME 10.0.0.8` with an address of
// the host that it runs on. Both then need the secret.
#include <braid/transfer.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace {

using braid::Transfer;
using std::chrono::seconds;

constexpr uint64_t kHalf = 64 << 20;  // of the owner's memory: one is read, the other is written
constexpr uint64_t kPart = 4 << 20;   // what one request moves

int fail(const std::string& message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  return 1;
}

std::byte byte_at(uint64_t place) { return static_cast<std::byte>(place * 31 >> 9); }

void fill(std::vector<std::byte>& memory, uint64_t begin) {
  for (uint64_t i = begin; i < begin + kHalf; ++i) memory[i] = byte_at(i);
}

bool is_right(const std::vector<std::byte>& memory, uint64_t begin) {
  for (uint64_t i = begin; i < begin + kHalf; ++i)
    if (memory[i] != byte_at(i)) return false;
  return true;
}

/// Lets peers read and write its memory until one says that it has done so.
int own(Transfer& engine, std::vector<std::byte>& memory) {
  fill(memory, 0);
  const Transfer::Rights rights{/*may_read=*/true, /*may_write=*/true};
  const auto registered = engine.register_memory(memory.data(), memory.size(), rights);
  if (!registered.ok()) return fail(registered.status().message());
  const auto name = engine.name();
  if (!name.ok()) return fail(name.status().message());
  std::printf("%s\n", name.value().c_str());
  std::fflush(stdout);

  const auto told = engine.next_notification(seconds(120));
  if (!told.ok()) return fail(told.status().message());
  if (!told.value()) return fail("nobody has written");
  if (!is_right(memory, kHalf)) return fail("wrong bytes have been written");
  std::printf("verified what was written\n");
  return 0;
}

/// Reads the owner's first half, writes its second, and tells it when all of this is done.
int use(Transfer& engine, std::vector<std::byte>& memory, const std::string& name) {
  fill(memory, kHalf);
  const auto registered = engine.register_memory(memory.data(), memory.size(), {});
  if (!registered.ok()) return fail(registered.status().message());
  const auto opened = engine.open_segment(name, seconds(10));
  if (!opened.ok()) return fail(opened.status().message());
  const Transfer::Segment there = opened.value();
  const auto ranges = engine.ranges(there);  // what the owner has registered, at its own addresses
  if (!ranges.ok()) return fail(ranges.status().message());
  if (ranges.value().empty() || ranges.value()[0].size_bytes != memory.size())
    return fail("the owner has other memory than this example's");

  const uint64_t address = ranges.value()[0].address;
  std::vector<Transfer::Request> requests;
  for (uint64_t i = 0; i < memory.size(); i += kPart)
    requests.push_back({there, i < kHalf ? Transfer::Operation::kRead : Transfer::Operation::kWrite,
                        &memory[i], address + i, kPart});
  const auto batch = engine.submit(requests, Transfer::Notification{there, "done"});
  if (!batch.ok()) return fail(batch.status().message());
  const auto ended = engine.wait(batch.value(), seconds(60));
  if (!ended.ok()) return fail(ended.status().message());
  if (!ended.value()) return fail("the batch has not ended in time");
  const auto outcomes = engine.outcomes(batch.value());
  if (!outcomes.ok()) return fail(outcomes.status().message());
  for (const Transfer::Outcome& outcome : outcomes.value())
    if (!outcome.is_done()) return fail(Transfer::cause_name(outcome.cause));
  if (!is_right(memory, 0)) return fail("wrong bytes have been read");
  std::printf("verified what was read\n");
  return 0;
}

}  // namespace

int main(int count, char** words) {
  const std::string role = count > 1 ? words[1] : "";
  if (!(role == "own" && count <= 3) && !(role == "use" && (count == 3 || count == 4)))
    return fail("usage: transfer own [ADDRESS:PORT] | transfer use NAME [ADDRESS]");
  // It ends after the engine: until then peers and requests use it.
  std::vector<std::byte> memory(2 * kHalf);
  Transfer::Options options;
  if (role == "own" && count == 3) options.listen = words[2];
  if (role == "use" && count == 4) options.addresses = {words[3]};
  auto opened = Transfer::open(options);
  if (!opened.ok()) return fail(opened.status().message());
  Transfer engine = std::move(opened).value();
  return role == "own" ? own(engine, memory) : use(engine, memory, words[2]);
}
