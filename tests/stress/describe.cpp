#include <cstdio>

#include "stress/program.h"

namespace braid::stress {
namespace {

const char* step_name(Step step) {
  static const char* const names[] = {
      "copy",         "fill",         "record",      "wait",          "sync event",
      "sync stream",  "sync context", "check order", "host function", "touch",
      "hold",         "check held",   "release",     "renew",         "renew in stream",
      "renew stream", "capture",      "mistake",     "reset",         "kernel",
      "fork"};
  return names[static_cast<int>(step)];
}

const char* call_name(CopyCall call) {
  static const char* const names[] = {
      "up",     "down",       "any",   "rows",       "rows unaligned",
      "layers", "batch 12.8", "batch", "boxes 12.8", "boxes"};
  return names[static_cast<int>(call)];
}

template <typename... Values>
std::string text(const char* format, Values... values) {
  char line[256];
  std::snprintf(line, sizeof line, format, values...);
  return line;
}

std::string describe(const Copy& copy) {
  std::string said = text(" %s%s%s", call_name(copy.call), copy.is_async ? " async" : "",
                          copy.has_per_thread_symbol ? " per thread" : "");
  const Shape& shape = copy.shape;
  if (shape.width_bytes > 0)
    said += text(" %lux%lux%lu pitch %lu<-%lu rows %lu<-%lu", shape.width_bytes, shape.height,
                 shape.depth, shape.to_pitch_bytes, shape.from_pitch_bytes, shape.to_layer_rows,
                 shape.from_layer_rows);
  for (const Piece& piece : copy.pieces)
    said += text(" [%d+%lu <- %d+%lu, %lu bytes]", piece.to, piece.to_offset, piece.from,
                 piece.from_offset, piece.size_bytes);
  return said;
}

}  // namespace

std::string describe(const Region& region) {
  static const char* const names[] = {"pinned", "registered", "pageable", "device",
                                      "pool",   "mapped",     "managed"};
  return text("%s of GPU %d, %lu bytes", names[static_cast<int>(region.kind)], region.gpu,
              region.size_bytes);
}

std::string describe(const Stream& stream) {
  static const char* const names[] = {"legacy", "per thread", "blocking", "non-blocking", "urgent"};
  return text("%s of GPU %d", names[static_cast<int>(stream.flavour)], stream.gpu);
}

std::string describe(const Operation& operation) {
  std::string said = step_name(operation.step);
  if (operation.stream >= 0) said += text(" stream %d", operation.stream);
  if (operation.region >= 0) said += text(" region %d", operation.region);
  if (operation.event >= 0) said += text(" event %d", operation.event);
  if (operation.other_event >= 0) said += text(" event %d", operation.other_event);
  if (operation.value > 0) said += text(" value %lu", operation.value);
  return operation.step == Step::kCopy || operation.step == Step::kKernel
             ? said + describe(operation.copy)
             : said;
}

}  // namespace braid::stress
