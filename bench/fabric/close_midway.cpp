// What ends a write that has begun? Another process writes until its first page has landed here;
// then the region is removed, or the door closed that the write comes through, or that process is
// killed; the memory is filled anew, and looked at.
//
//   close_midway [PROVIDER [region|door|kill]]      tcp;ofi_rxm and region by default
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "fabric/ofi/domain.h"

using namespace braid::fabric;

namespace {

constexpr size_t kBytes = 64 << 20, kPage = 4096;
constexpr int kLooks = 30'000;

/// What the writer has to know, in memory that both processes share.
struct Shared {
  std::atomic<bool> is_ready = false;
  size_t address_bytes = 0;
  std::byte address[kAddressBytesMax];
  RemoteRange range;
};

[[noreturn]] void write_for_ever(const ofi::Quirks& quirks, const Shared& shared) {
  while (!shared.is_ready) usleep(100);
  const auto writer = ofi::open_domain(quirks, "127.0.0.1").value();
  std::vector<std::byte> source(kBytes, std::byte{1});
  Write write;
  write.peer = writer->connect({shared.address, shared.address_bytes}).value();
  write.region = writer->add_region(source, Access::kLocal).value();
  write.source = source;
  write.target_address = shared.range.base;
  write.target_key = shared.range.key;
  write.immediate = 1;
  Completion completions[4];
  while (!writer->post_write(write)) writer->poll(completions);
  for (;;) writer->poll(completions);
}

}  // namespace

int main(int count, char** words) {
  const ofi::Quirks* quirks = ofi::find_quirks(count > 1 ? words[1] : "tcp;ofi_rxm");
  const std::string what = count > 2 ? words[2] : "region";
  if (quirks == nullptr) return 2;
  void* mapped =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* shared = new (mapped) Shared;  // owner: the mapping
  const pid_t process = fork();
  if (process == 0) write_for_ever(*quirks, *shared);

  const auto target = ofi::open_domain(*quirks, "127.0.0.1").value();
  std::vector<std::byte> memory(kBytes);
  const uint32_t region = target->add_region(memory, Access::kRemoteWrite).value();
  const uint32_t door = target->open_door().value();
  shared->range = target->remote_range(region);
  const Bytes address = target->door_address(door);
  shared->address_bytes = address.size();
  std::copy(address.begin(), address.end(), shared->address);
  shared->is_ready = true;

  Completion completions[4];
  bool has_arrived = false;
  const auto landed_pages = [&] {
    size_t landed = 0;
    for (size_t i = 0; i < kBytes; i += kPage) landed += memory[i] == std::byte{1};
    return landed;
  };
  while (landed_pages() == 0) has_arrived = target->poll(completions) > 0;
  const size_t before = landed_pages();
  if (what == "region") target->remove_region(region);
  if (what == "door") target->close_door(door);
  if (what == "kill") {
    kill(process, SIGKILL);
    waitpid(process, nullptr, 0);
  }
  std::fill(memory.begin(), memory.end(), std::byte{0});
  for (int i = 0; i < kLooks; ++i) has_arrived = target->poll(completions) > 0 || has_arrived;
  std::printf("%s, %s: %zu of %zu pages had landed; afterwards %td foreign bytes; immediate: %d\n",
              quirks->provider, what.c_str(), before, kBytes / kPage,
              std::count(memory.begin(), memory.end(), std::byte{1}), has_arrived);
  kill(process, SIGKILL);
  waitpid(process, nullptr, 0);
  return 0;
}
