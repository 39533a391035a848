#include "faults/tour.h"

namespace braid::faults {
namespace {

using stress::Copy;
using stress::CopyCall;
using stress::Flavour;
using stress::Operation;
using stress::Piece;
using stress::Program;
using stress::RegionKind;
using stress::Shape;
using stress::Step;

// Some slices of the copy-engine mover for each path; the kernel mover's are smaller.
constexpr uint64_t kLarge = (5 << 19) + 4;
// Staged in two chunks.
constexpr uint64_t kStaged = (1 << 20) + (256 << 10) + 12;
constexpr uint64_t kSmall = 200 << 10;

enum Region : int {
  kSource,
  kLanding,
  kDevice,
  kRegistered,
  kSmallDevice,
  kPages,
  kPagesLanding,
  kPool,
  kMapped,
  kOtherDevice,
  kOtherPinned,
};
enum Stream : int { kLegacy, kPlain, kUrgent, kOther, kPerThread };

class Tour {
 public:
  Program make() {
    program_.regions = {{RegionKind::kPinned, 0, kLarge},    {RegionKind::kPinned, 0, kLarge},
                        {RegionKind::kDevice, 0, kLarge},    {RegionKind::kRegistered, 0, kSmall},
                        {RegionKind::kDevice, 0, kSmall},    {RegionKind::kPageable, 0, kStaged},
                        {RegionKind::kPageable, 0, kStaged}, {RegionKind::kPool, 0, kSmall},
                        {RegionKind::kMapped, 0, kSmall},    {RegionKind::kDevice, 1, kSmall},
                        {RegionKind::kPinned, 1, kSmall}};
    program_.streams = {{Flavour::kLegacy, 0},
                        {Flavour::kNonBlocking, 0},
                        {Flavour::kUrgent, 0},
                        {Flavour::kNonBlocking, 1},
                        {Flavour::kPerThread, 0}};
    several_streams();
    batches();
    rows();
    pageable();
    pools_and_mappings();
    resets();
    program_.phases = {{std::move(operations_)}};
    return std::move(program_);
  }

 private:
  void several_streams() {
    copy(CopyCall::kUp, kPlain, kDevice, kSource, kLarge);
    copy(CopyCall::kUp, kUrgent, kSmallDevice, kRegistered, kSmall - 1);
    copy(CopyCall::kUp, kOther, kOtherDevice, kOtherPinned, kSmall);
    copy(CopyCall::kDown, kPlain, kLanding, kDevice, kLarge);
    copy(CopyCall::kDown, kOther, kOtherPinned, kOtherDevice, kSmall / 2);
    settle();
    touch(kSource);
    copy_now(CopyCall::kUp, kLegacy, kDevice, kSource, kLarge);
    copy_now(CopyCall::kDown, kLegacy, kLanding, kDevice, kLarge);
    touch(kRegistered);
    copy(CopyCall::kAny, kPerThread, kSmallDevice, kRegistered, kSmall);
    settle();
  }

  void batches() {
    for (const CopyCall call : {CopyCall::kBatch, CopyCall::kBatchFirst}) {
      touch(kRegistered);
      batch(call, kPlain, kSmallDevice, kRegistered);
      batch(call, kPlain, kLanding, kSmallDevice);
      settle();
    }
  }

  void rows() {
    const Shape shape{.width_bytes = 10'000,
                      .height = 8,
                      .depth = 2,
                      .to_pitch_bytes = 10'000,
                      .from_pitch_bytes = 11'000,
                      .to_layer_rows = 8,
                      .from_layer_rows = 8};
    touch(kRegistered);
    shaped(CopyCall::kRows, kLegacy, kSmallDevice, kRegistered, shape);
    shaped(CopyCall::kLayers, kPlain, kLanding, kSmallDevice, shape);
    settle();
    touch(kRegistered);
    shaped(CopyCall::kBoxes, kUrgent, kSmallDevice, kRegistered, shape);
    settle();
  }

  void pageable() {
    copy_now(CopyCall::kUp, kLegacy, kDevice, kPages, kStaged);
    copy_now(CopyCall::kDown, kLegacy, kPagesLanding, kDevice, kStaged);
    touch(kPages);
    copy(CopyCall::kUp, kPlain, kDevice, kPages, kStaged);
    copy(CopyCall::kDown, kPlain, kPagesLanding, kDevice, kStaged - 8);
    settle();
  }

  void pools_and_mappings() {
    for (const int memory : {kPool, kMapped}) {
      touch(kSource);
      copy(CopyCall::kUp, kPlain, memory, kSource, kSmall);
      copy(CopyCall::kDown, kPlain, kLanding, memory, kSmall);
      settle();
    }
  }

  // A relay of copies that are in flight, and a target.
  void resets() {
    copy(CopyCall::kUp, kPlain, kDevice, kSource, kLarge);
    copy(CopyCall::kUp, kOther, kOtherDevice, kOtherPinned, kSmall);
    operations_.push_back({.step = Step::kReset, .value = 1});
    copy(CopyCall::kUp, kOther, kOtherDevice, kOtherPinned, kSmall);
    copy(CopyCall::kDown, kPlain, kLanding, kDevice, kLarge);
    copy(CopyCall::kDown, kOther, kOtherPinned, kOtherDevice, kSmall / 2);
    settle();
  }

  Operation& add(CopyCall call, int stream, int to, int from, uint64_t size_bytes, bool is_async) {
    Operation made{.step = Step::kCopy, .stream = stream};
    made.copy.call = call;
    made.copy.is_async = is_async;
    made.copy.has_per_thread_symbol = stream == kPerThread;
    made.copy.pieces.push_back({to, from, 0, 0, size_bytes});
    operations_.push_back(std::move(made));
    return operations_.back();
  }
  void copy(CopyCall call, int stream, int to, int from, uint64_t size_bytes) {
    add(call, stream, to, from, size_bytes, true);
  }
  void copy_now(CopyCall call, int stream, int to, int from, uint64_t size_bytes) {
    add(call, stream, to, from, size_bytes, false);
  }
  // Entries of odd sizes, apart from each other at both ends.
  void batch(CopyCall call, int stream, int to, int from) {
    constexpr uint64_t kEntries = 12;
    constexpr uint64_t kEntryBytes = 14'003;
    constexpr uint64_t kSlotBytes = 16'384;
    Copy& copy = add(call, stream, to, from, kEntryBytes, true).copy;
    for (uint64_t entry = 1; entry < kEntries; ++entry)
      copy.pieces.push_back({to, from, entry * kSlotBytes, entry * kSlotBytes, kEntryBytes});
  }
  void shaped(CopyCall call, int stream, int to, int from, const Shape& shape) {
    add(call, stream, to, from, 0, stream != kLegacy).copy.shape = shape;
  }
  void touch(int region) { operations_.push_back({.step = Step::kTouch, .region = region}); }
  void settle() {
    for (const int stream : {kLegacy, kPlain, kUrgent, kOther, kPerThread})
      operations_.push_back({.step = Step::kSyncStream, .stream = stream});
  }

  Program program_;
  std::vector<Operation> operations_;
};

}  // namespace

Program make_tour() { return Tour().make(); }

}  // namespace braid::faults
