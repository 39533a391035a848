// What a program has while it runs: its regions, streams and events, on a server that is there for
// all programs. Made before the program, ended after it, and made anew when a context is reset.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "stress/calls.h"
#include "stress/copy_calls.h"
#include "stress/memory.h"
#include "stress/program.h"

namespace braid::stress {

/// What threads of programs share, whatever the program.
struct Server {
  const Calls& calls;
  bool traces;
  std::vector<CUcontext> contexts{};
  std::vector<CUfunction> kernels{};  ///< the programs' own (kernel.h), by GPU

  void use(int gpu) const { must(calls.set_current(contexts[gpu]), "cuCtxSetCurrent"); }
  /// Makes a GPU's primary context, with all that programs share there.
  CUresult open(int gpu);
  CUresult reset(int gpu);
};

/// A region, and what has been seen of it. One thread or host function at a time.
struct Place {
  Memory memory;
  uint64_t size_bytes;
  uint64_t seen = 0;

  void note() { seen = mix(seen, hash_bytes(memory.host(), size_bytes)); }
  void change() {
    note();
    for (uint64_t at = 0; at < size_bytes; at += 61) memory.host()[at] += 1;
  }
};

/// Calls that make and end must succeed. Any thread may look; one at a time makes and ends.
class Stock {
 public:
  Stock(Server& server, const Program& program) : server_(server), program_(program) {}

  void make();
  void end();

  Place& place(int region) { return places_[region]; }
  CUstream stream(int number) const { return streams_[number]; }
  CUevent event(int number) const { return events_[number]; }
  /// That streams are held by, by event.
  uint32_t* word(int event) const { return words_ + event; }
  const Victim& victim() const { return victim_; }

  CUresult renew_stream(int number);
  /// The primary context of a GPU. Work that is in flight ends first, as the driver has it. What
  /// the context held is gone with it, and made again; memory of pools and mappings stays.
  CUresult reset(int gpu);

  uint64_t hash_memory();
  uint64_t hash_seen() const;

 private:
  void make_words();
  CUresult create_stream(int number);

  Server& server_;
  const Program& program_;
  std::deque<Place> places_;
  std::vector<CUstream> streams_;
  std::vector<CUevent> events_;
  uint32_t* words_ = nullptr;
  Victim victim_{};
};

}  // namespace braid::stress
