#include "multipath/transfer.h"

namespace braid::multipath {

uint64_t size_of(const Batch& batch) {
  uint64_t size_bytes = 0;
  for (const Segment& segment : batch.segments()) size_bytes += segment.size_bytes;
  return size_bytes;
}

const char* direction_name(Direction direction) {
  return direction == Direction::kHostToDevice ? "h2d" : "d2h";
}

const char* verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kAccelerated: return "accelerated";
    case Verdict::kStaged: return "staged";
    case Verdict::kBelowThreshold: return "below_threshold";
    case Verdict::kNoGain: return "no_gain";
    case Verdict::kCold: return "cold";
    case Verdict::kBlocked: return "blocked";
    case Verdict::kPageable: return "pageable";
    case Verdict::kNotLinear: return "not_linear";
    case Verdict::kCapturing: return "capturing";
    case Verdict::kForeignContext: return "foreign_context";
    case Verdict::kNoRelay: return "no_relay";
    case Verdict::kSwitchedOff: return "switched_off";
    case Verdict::kNotReady: return "not_ready";
    case Verdict::kSaturated: return "saturated";
    case Verdict::kDriverError: return "driver_error";
    case Verdict::kFailed: return "failed";
  }
  return "unknown";
}

const char* reason_name(Reason reason) { return reason == Reason::kAsked ? "asked" : "faster"; }

const char* priority_name(Priority priority) {
  return priority == Priority::kUrgent ? "urgent" : "bulk";
}

const char* mover_name(Mover mover) {
  switch (mover) {
    case Mover::kNative: return "native";
    case Mover::kKernel: return "kernel";
    case Mover::kCopyEngine: return "copy_engine";
  }
  return "unknown";
}

}  // namespace braid::multipath
