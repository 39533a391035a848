// The C interface: reports of what an engine does, and why.
#include "transfer/library/abi.h"
#include "transfer/library/report.h"
#include "transfer/nic_matrix.h"

using namespace braid::transfer;
using namespace braid::transfer::abi;
using braid::Result;
using braid::StatsFormat;
using braid::Status;

namespace {

StatsFormat format_of(int form) {
  switch (form) {
    case BRAID_TRANSFER_TEXT: return StatsFormat::kText;
    case BRAID_TRANSFER_JSON: return StatsFormat::kJson;
    case BRAID_TRANSFER_PROMETHEUS: return StatsFormat::kPrometheus;
    default: return StatsFormat::kNone;
  }
}

bool is_explanation(StatsFormat format) {
  return format == StatsFormat::kText || format == StatsFormat::kJson;
}

/// Why there is no way to a segment.
Status no_way(const Engine& engine, uint64_t segment) {
  const Cause wrong = engine.wrong_with(segment);
  if (wrong == Cause::kNoSegment) return no_such_segment();
  return failure(wrong == Cause::kNone ? Cause::kNoWay : wrong);
}

/// One way at least, or an error.
Result<std::vector<WayExplanation>> explain(Engine& engine, uint64_t segment, uint64_t size_bytes,
                                            Urgency urgency) {
  std::vector<WayExplanation> ways;
  if (engine.wrong_with(segment) == Cause::kNone)
    ways = engine.explain(segment, size_bytes, urgency);
  if (ways.empty()) return no_way(engine, segment);
  return ways;
}

}  // namespace

braid_status braid_transfer_explain_request(braid_transfer* transfer,
                                            const braid_transfer_request* request, int form,
                                            char* buffer, size_t buffer_bytes,
                                            size_t* needed_bytes) {
  return guarded(
      transfer,
      [&](Service& service) {
        const StatsFormat format = format_of(form);
        if (!is_explanation(format))
          return report(BRAID_ERROR_ARGUMENT, "an explanation is text or JSON");
        if (const Status known = check_request(*request); !known.ok()) return report(known);
        const Request asked = request_of(*request);
        const auto ways = service.with([&](Engine& engine) { return engine.explain(asked); });
        if (!ways.ok()) return report(ways.status());
        std::vector<RefusedMemory> refused =
            service.with([](Engine& engine) { return engine.refused_memory(); });
        const auto local = reinterpret_cast<uint64_t>(asked.local);
        std::erase_if(refused, [&](const RefusedMemory& each) {
          return local < each.address || local - each.address >= each.size_bytes;
        });
        return hand_out(write_explanation(format, ways.value(), asked.size_bytes, refused), buffer,
                        buffer_bytes, needed_bytes);
      },
      request);
}

braid_status braid_transfer_explain(braid_transfer* transfer, uint64_t segment, uint64_t size_bytes,
                                    int urgency, int form, char* buffer, size_t buffer_bytes,
                                    size_t* needed_bytes) {
  return guarded(transfer, [&](Service& service) {
    const StatsFormat format = format_of(form);
    if (!is_explanation(format))
      return report(BRAID_ERROR_ARGUMENT, "an explanation is text or JSON");
    if (!is_urgency(urgency)) return report(BRAID_ERROR_ARGUMENT, "there is no such urgency");
    const Urgency how = urgency == BRAID_TRANSFER_URGENT ? Urgency::kUrgent : Urgency::kBulk;
    const auto ways =
        service.with([&](Engine& engine) { return explain(engine, segment, size_bytes, how); });
    if (!ways.ok()) return report(ways.status());
    return hand_out(write_explanation(format, ways.value(), size_bytes), buffer, buffer_bytes,
                    needed_bytes);
  });
}

braid_status braid_transfer_topology(const char* const* devices, size_t device_count, char* buffer,
                                     size_t buffer_bytes, size_t* needed_bytes) {
  return guarded([&] {
    if (!is_list(devices, device_count))
      return report(BRAID_ERROR_ARGUMENT, "devices are null, or one of them is");
    return hand_out(host_matrix(braid::topology::Machine(), list_of(devices, device_count)), buffer,
                    buffer_bytes, needed_bytes);
  });
}

braid_status braid_transfer_report(braid_transfer* transfer, int form, char* buffer,
                                   size_t buffer_bytes, size_t* needed_bytes) {
  return guarded(transfer, [&](Service& service) {
    const StatsFormat format = format_of(form);
    if (format == StatsFormat::kNone)
      return report(BRAID_ERROR_ARGUMENT, "there is no such form of a report");
    return hand_out(write_report(format, service.report()), buffer, buffer_bytes, needed_bytes);
  });
}
