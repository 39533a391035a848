// A staging ring: a few slots of pinned memory that chunks use in turn, with a fence for each. The
// fence says when the last transfer of the slot has passed.
//
// A ring belongs to one context: its fences are events of that context, and its memory is
// registered there. It serves one copy at a time. Not thread-safe: the borrower (ring_pool.h) uses
// it alone.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

#include "base/status.h"
#include "cuda/driver.h"
#include "host/huge_pages.h"
#include "multipath/staging/chunks.h"

namespace braid::multipath::staging {

class Ring {
 public:
  Ring(const cuda::Driver& driver, CUcontext context) : driver_(driver), context_(context) {}
  /// Frees everything, unless a transfer may still be under way: then the memory is never freed.
  ~Ring();
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  /// Maps and pins the slots and creates the fences. Some milliseconds. Call once; after an error
  /// the ring is broken.
  Status open();

  CUcontext context() const { return context_; }
  uint8_t* slot(int index) const {
    return reinterpret_cast<uint8_t*>(memory_.bytes().data()) +
           uint64_t(index % kSlots) * kSlotBytes;
  }

  /// Puts a fence behind the slot's transfer, in the order of `stream`. If the driver refuses, the
  /// ring is broken: it is unknown when the slot becomes free.
  bool fence(int index, CUstream stream);

  /// Waits until the slot's last transfer has passed. False: the stream has an error, and the ring
  /// is broken.
  bool wait(int index);

  /// True if every transfer has passed. Does not wait.
  bool is_idle();

  /// Repairs a broken ring, once its stream has been waited for: all work on the ring has passed.
  /// Not one that is lost.
  void mend();

  /// A transfer is under way that no stream waits for: the ring is broken for good, and its memory
  /// is never freed.
  void lose();

  bool is_broken() const { return is_broken_; }

  /// The context is about to end, or has ended: no driver call frees anything there. Any thread.
  void abandon() { is_abandoned_ = true; }
  /// The same, of an open ring whose transfers have all passed: its pages go back to the system
  /// with the context.
  void leave_to_context();
  bool is_abandoned() const { return is_abandoned_; }

 private:
  Status pin();
  void hold_primary_context();
  void release();
  void let_go();
  bool pass(int index, CUresult result);

  const cuda::Driver& driver_;
  const CUcontext context_;
  std::optional<CUdevice> held_;  // the primary context of this device is retained by this ring
  HugePages memory_;
  bool is_pinned_ = false;
  bool is_broken_ = true;  // until it is open
  bool is_lost_ = false;
  std::atomic<bool> is_abandoned_{false};
  std::array<CUevent, kSlots> fences_{};
  std::array<bool, kSlots> in_flight_{};
};

}  // namespace braid::multipath::staging
