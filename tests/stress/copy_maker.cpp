#include "stress/copy_maker.h"

#include <algorithm>

namespace braid::stress {
namespace {

bool is_batch(CopyCall call) { return call >= CopyCall::kBatchFirst; }
bool is_shaped(CopyCall call) {
  return call == CopyCall::kRows || call == CopyCall::kRowsUnaligned || call == CopyCall::kLayers;
}

}  // namespace

CopyCall CopyMaker::draw_call() {
  static const std::vector<CopyCall> calls = {
      CopyCall::kUp,    CopyCall::kUp,    CopyCall::kUp,         CopyCall::kDown,
      CopyCall::kDown,  CopyCall::kDown,  CopyCall::kAny,        CopyCall::kAny,
      CopyCall::kRows,  CopyCall::kRows,  CopyCall::kLayers,     CopyCall::kRowsUnaligned,
      CopyCall::kBatch, CopyCall::kBatch, CopyCall::kBatchFirst, CopyCall::kBoxesFirst,
      CopyCall::kBoxes};
  return random_.of(calls);
}

// A few in a hundred are nothing, many are small.
uint64_t CopyMaker::some_bytes(uint64_t room) {
  switch (random_.below(20)) {
    case 0: return 0;
    case 1:
    case 2: return random_.below(std::min<uint64_t>(room, 65));
    case 3: return room;
    default: return random_.below(room + 1);
  }
}

// Mapped and pooled memory is its own GPU's; plain memory takes copies of any GPU's streams.
bool CopyMaker::fits(const Region& region, int stream, bool is_prompt) const {
  if (is_prompt && !region.is_prompt()) return false;
  if (region.is_host() || region.kind == RegionKind::kManaged) return true;
  return region.gpu == program_.streams[stream].gpu;
}

// Copies from host to host are the CPU's, and waited for.
bool CopyMaker::choose_pair(CopyCall call, const std::vector<int>& usable, bool is_prompt, int& to,
                            int& from) {
  constexpr int kTries = 12;
  const bool wants_host = !random_.one_in(6);
  for (int attempt = 0; attempt < kTries; ++attempt) {
    to = random_.of(usable);
    from = random_.of(usable);
    const bool to_host = program_.regions[to].is_host();
    const bool from_host = program_.regions[from].is_host();
    if (to == from || (is_prompt && to_host && from_host)) continue;
    if (call == CopyCall::kUp && (to_host || !from_host)) continue;
    if (call == CopyCall::kDown && (!to_host || from_host)) continue;
    if (wants_host && to_host == from_host) continue;
    return true;
  }
  return false;
}

void CopyMaker::add_linear(Copy& copy, int to, int from) {
  const uint64_t to_room = program_.regions[to].size_bytes;
  const uint64_t from_room = program_.regions[from].size_bytes;
  const uint64_t size = some_bytes(std::min(to_room, from_room));
  copy.pieces.push_back(
      {to, from, random_.below(to_room - size + 1), random_.below(from_room - size + 1), size});
}

void CopyMaker::add_rows(Copy& copy, int to, int from) {
  const uint64_t room =
      std::min(program_.regions[to].size_bytes, program_.regions[from].size_bytes);
  Shape& shape = copy.shape;
  shape.depth = copy.call == CopyCall::kLayers || copy.call >= CopyCall::kBoxesFirst
                    ? random_.between(1, 4)
                    : 1;
  shape.height = random_.between(1, 12);
  const auto layer_rows = [&] { return shape.height + random_.below(3) * random_.below(3); };
  shape.to_layer_rows = layer_rows();
  shape.from_layer_rows = layer_rows();
  const uint64_t rows = std::max(shape.to_layer_rows, shape.from_layer_rows) * shape.depth;
  const uint64_t pitch = room / rows;  // rows up to this long fit
  shape.width_bytes = random_.below(pitch + 1);
  const auto some_pitch = [&] {
    return std::max<uint64_t>(
        1, random_.one_in(2) ? shape.width_bytes : random_.between(shape.width_bytes, pitch));
  };
  shape.to_pitch_bytes = some_pitch();
  shape.from_pitch_bytes = some_pitch();
  const auto offset = [&](int region, uint64_t pitch_bytes, uint64_t layer) {
    return random_.below(program_.regions[region].size_bytes - pitch_bytes * layer * shape.depth +
                         1);
  };
  copy.pieces.push_back({to, from, offset(to, shape.to_pitch_bytes, shape.to_layer_rows),
                         offset(from, shape.from_pitch_bytes, shape.from_layer_rows), 0});
}

// The destination is divided, so that entries do not meet in any order.
void CopyMaker::add_entries(Copy& copy, int to, int from) {
  const uint64_t count = random_.between(1, 9);
  const uint64_t slot = program_.regions[to].size_bytes / count;
  const uint64_t from_room = program_.regions[from].size_bytes;
  for (uint64_t entry = 0; entry < count; ++entry) {
    const uint64_t size = std::min(some_bytes(std::min(slot, from_room)), from_room);
    copy.pieces.push_back({to, from, entry * slot + random_.below(slot - size + 1),
                           random_.below(from_room - size + 1), size});
  }
}

void CopyMaker::add_boxes(Copy& copy, int to, int from) {
  add_rows(copy, to, from);
  Shape& shape = copy.shape;
  if (shape.width_bytes == 0) shape.width_bytes = 1;
  // Without a pitch of their own, rows and layers touch.
  if (random_.one_in(3)) {
    shape.to_pitch_bytes = shape.from_pitch_bytes = shape.width_bytes;
    shape.to_layer_rows = shape.from_layer_rows = shape.height;
  }
}

void CopyMaker::add_batch(Copy& copy, const std::vector<int>& usable, bool is_prompt, int to,
                          int from) {
  add_entries(copy, to, from);
  std::vector<int> others;
  for (const int region : usable)
    if (region != to && region != from) others.push_back(region);
  if (others.size() >= 2 && random_.one_in(3)) {  // directions may differ in one batch
    int other_to = 0, other_from = 0;
    if (choose_pair(CopyCall::kAny, others, is_prompt, other_to, other_from))
      add_entries(copy, other_to, other_from);
  }
  if (copy.pieces.size() > 1 && random_.one_in(3))
    copy.second_attribute_at = random_.between(1, copy.pieces.size() - 1);
}

// Sources that are not read in the stream's order must be complete when the call is made: those of
// batches that say so, and pageable memory in other asynchronous copies ("host memory is copied to
// a staging buffer immediately").
void CopyMaker::take(const Copy& copy, int stream) {
  for (const Piece& piece : copy.pieces) {
    const bool is_read_at_once =
        is_batch(copy.call)
            ? copy.order != CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
            : copy.is_async && program_.regions[piece.from].kind == RegionKind::kPageable;
    if (is_read_at_once) owners_.settle(piece.from);
  }
  for (const Piece& piece : copy.pieces) owners_.acquire(piece.to, stream);
  for (const Piece& piece : copy.pieces) owners_.acquire(piece.from, stream);
}

// CUDA driver API, "API synchronization behavior": what the CPU may use when the call has returned.
void CopyMaker::note_end(const Copy& copy) {
  const Piece& piece = copy.pieces.front();
  const Region& to = program_.regions[piece.to];
  const Region& from = program_.regions[piece.from];
  if (is_batch(copy.call) || is_shaped(copy.call) || to.is_host() == from.is_host()) return;
  if (to.kind == RegionKind::kManaged || from.kind == RegionKind::kManaged) return;
  // Nothing waits for a copy of no bytes.
  if (piece.size_bytes == 0) return;
  if (to.is_host() && (!copy.is_async || to.kind == RegionKind::kPageable)) {
    owners_.settled(piece.to);
    owners_.settled(piece.from);
  }
  if (from.is_host() && (!copy.is_async || from.kind == RegionKind::kPageable))
    owners_.settled(piece.from);
}

std::optional<Operation> CopyMaker::make(int stream, const std::vector<int>& regions,
                                         bool is_prompt) {
  const Stream& chosen = program_.streams[stream];
  std::vector<int> usable;
  for (const int region : regions)
    if (fits(program_.regions[region], stream, is_prompt)) usable.push_back(region);
  Operation made{.step = Step::kCopy, .stream = stream};
  Copy& copy = made.copy;
  copy.call = draw_call();
  if (is_batch(copy.call) && chosen.flavour == Flavour::kLegacy) return std::nullopt;
  if (copy.call == CopyCall::kRowsUnaligned && (is_prompt || !chosen.is_default()))
    return std::nullopt;
  int to = 0, from = 0;
  if (usable.size() < 2 || !choose_pair(copy.call, usable, is_prompt, to, from))
    return std::nullopt;
  const bool may_be_sync = !is_prompt && chosen.is_default() && !is_batch(copy.call);
  copy.is_async = copy.call != CopyCall::kRowsUnaligned && (!may_be_sync || random_.one_in(2));
  copy.has_per_thread_symbol =
      copy.is_async ? random_.one_in(2) : chosen.flavour == Flavour::kPerThread;
  if (copy.call == CopyCall::kBatch || copy.call == CopyCall::kBatchFirst)
    add_batch(copy, usable, is_prompt, to, from);
  else if (is_batch(copy.call))
    add_boxes(copy, to, from);
  else if (is_shaped(copy.call))
    add_rows(copy, to, from);
  else
    add_linear(copy, to, from);
  if (is_batch(copy.call) && !is_prompt && random_.one_in(5))
    copy.order = random_.one_in(2) ? CU_MEMCPY_SRC_ACCESS_ORDER_ANY
                                   : CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
  take(copy, stream);
  note_end(copy);
  return made;
}

}  // namespace braid::stress
