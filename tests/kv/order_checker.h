// Finds what is not ordered, even where the bytes came out right: a vector clock for each stream
// and for the host, fed by waits, records and queries of events; and for each range of memory, who
// read and wrote it last. Two accesses of which one writes must be ordered.
//
// Ranges are whole segments of slots (kv/layout.h): all that the tests and the engine copy. A copy
// of several is taken apart.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cuda/driver.h"
#include "kv/copier.h"

namespace braid::kv::test {

class OrderChecker {
 public:
  /// The functions of `real` with which streams and the host are ordered, watched. One checker a
  /// process, since the functions have no state of their own.
  cuda::Driver watch(const cuda::Driver& real);

  /// From now on every n-th wait and record is refused, beginning with the first; 0: none.
  void refuse_every(uint64_t n) { refused_ = {.every = n}; }
  /// The same, of records alone.
  void refuse_every_record(uint64_t n) { refused_ = {.every = n, .waits = false}; }
  /// How many were, since that was asked for.
  uint64_t refused() const { return refused_.count; }
  /// From now on no stream waits for another's event: what the engine orders is not.
  void forget_waits() { forgets_waits_ = true; }
  /// From now on every event is said to have passed, whatever is still under way.
  void pass_events_early() { passes_events_early_ = true; }
  /// From now on the GPU has failed: every call that is watched says so.
  void fail_gpu() { has_gpu_failed_ = true; }

  /// What the next operation of the stream does; `who` names it in conflicts.
  void begin_operation(CUstream stream, std::string who);
  void reads(CUstream stream, uint64_t address);
  void writes(CUstream stream, uint64_t address);

  /// "batch of copies down writes what step 4 reads"; empty: all is ordered.
  const std::vector<std::string>& conflicts() const { return conflicts_; }

 private:
  using Clock = std::map<CUstream, uint64_t>;
  struct Access {
    CUstream stream;
    uint64_t time;
    std::string who;
  };
  struct Range {
    std::vector<Access> writes;  // the latest
    std::vector<Access> reads;   // since then
  };

  static void join(Clock& clock, const Clock& other);
  void access(CUstream stream, uint64_t address, bool is_write);
  void compare(const Access& now, const std::vector<Access>& before, const char* what);

  struct Refused {
    uint64_t every = 0;
    bool waits = true;
    uint64_t calls = 0;
    uint64_t count = 0;
  };

  bool is_refused() {
    const bool is = refused_.every != 0 && refused_.calls++ % refused_.every == 0;
    refused_.count += is ? 1 : 0;
    return is;
  }

  static CUresult stream_wait_event(CUstream stream, CUevent event, unsigned flags);
  static CUresult event_record(CUevent event, CUstream stream);
  static CUresult event_query(CUevent event);
  static CUresult stream_query(CUstream stream);
  static CUresult stream_synchronize(CUstream stream);

  cuda::Driver real_;
  std::map<CUstream, Clock> streams_;
  std::map<CUstream, std::string> operations_;
  std::map<CUevent, Clock> events_;
  Clock host_;
  std::map<uint64_t, Range> ranges_;
  std::vector<std::string> conflicts_;
  Refused refused_;
  bool forgets_waits_ = false;
  bool passes_events_early_ = false;
  bool has_gpu_failed_ = false;
};

/// Tells the checker what each batch reads and writes.
class WatchedCopier final : public Copier {
 public:
  /// All segments have `segment_bytes`.
  WatchedCopier(std::unique_ptr<Copier> inner, OrderChecker& checker, uint64_t segment_bytes)
      : inner_(std::move(inner)), checker_(checker), segment_bytes_(segment_bytes) {}
  Status copy(std::span<const library::Copy> copies, CUstream stream, Urgency urgency) override;

 private:
  std::unique_ptr<Copier> inner_;
  OrderChecker& checker_;
  const uint64_t segment_bytes_;
};

}  // namespace braid::kv::test
