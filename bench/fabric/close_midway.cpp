// Does closing a region stop a write that has begun? Two endpoints in one process: the write goes
// on until its first page has landed, the region is removed, the memory is filled anew.
//
//   close_midway [PROVIDER]      tcp;ofi_rxm by default
#include <algorithm>
#include <cstdio>
#include <vector>

#include "fabric/ofi/domain.h"

using namespace braid::fabric;

int main(int count, char** words) {
  constexpr size_t kBytes = 64 << 20, kPage = 4096;
  constexpr int kLooks = 30'000;
  const ofi::Quirks* quirks = ofi::find_quirks(count > 1 ? words[1] : "tcp;ofi_rxm");
  if (quirks == nullptr) return 2;
  const auto writer = ofi::open_domain(*quirks, "127.0.0.1").value();
  const auto target = ofi::open_domain(*quirks, "127.0.0.1").value();
  std::vector<std::byte> source(kBytes, std::byte{1}), memory(kBytes);
  const uint32_t region = target->add_region(memory, Access::kRemoteWrite).value();
  const RemoteRange range = target->remote_range(region);
  Write write;
  write.peer = writer->connect(target->address()).value();
  write.region = writer->add_region(source, Access::kLocal).value();
  write.source = source;
  write.target_address = range.base;
  write.target_key = range.key;
  write.immediate = 1;

  Completion completions[4];
  bool has_ended = false, has_arrived = false;
  const auto look = [&] {
    for (size_t i = writer->poll(completions); i > 0; --i) has_ended = true;
    for (size_t i = target->poll(completions); i > 0; --i) has_arrived = true;
  };
  const auto landed_pages = [&] {
    size_t landed = 0;
    for (size_t i = 0; i < kBytes; i += kPage) landed += memory[i] == std::byte{1};
    return landed;
  };
  while (!writer->post_write(write)) look();
  while (landed_pages() == 0) look();
  const size_t before = landed_pages();
  target->remove_region(region);
  std::fill(memory.begin(), memory.end(), std::byte{0});
  for (int i = 0; i < kLooks; ++i) look();
  const auto foreign = std::count(memory.begin(), memory.end(), std::byte{1});
  std::printf(
      "%s: %zu of %zu pages had landed; afterwards %td foreign bytes; completed: %d, immediate: "
      "%d\n",
      quirks->provider, before, kBytes / kPage, foreign, has_ended, has_arrived);
  return 0;
}
