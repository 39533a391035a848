// The C interface: segments, batches and notifications.
#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "transfer/library/abi.h"

using namespace braid::transfer;
using namespace braid::transfer::abi;
using braid::Result;
using braid::Status;

namespace {

constexpr const char* kNullList = "a list is null, and has a size";
/// The limit of a deadline that has passed. 1 us from now would be too late: a small copy ends
/// sooner.
constexpr uint64_t kPassedUs = 1;
constexpr uint64_t kLongAgoNs = 1;

/// Of a request that has one.
uint64_t deadline_after(uint64_t limit_us) {
  return limit_us == kPassedUs ? kLongAgoNs : braid::monotonic_after_ns(limit_us);
}

/// `wrong`: what is wrong with the notification, if anything.
std::optional<NotificationRequest> notification_of(const braid_transfer_notification* given,
                                                   Status& wrong) {
  if (given == nullptr) return std::nullopt;
  NotificationRequest notification;
  notification.segment = given->segment;
  if (given->name != nullptr) notification.name = given->name;
  const auto* first = static_cast<const std::byte*>(given->payload);
  if (first != nullptr) notification.payload.assign(first, first + given->payload_bytes);
  if (first == nullptr && given->payload_bytes > 0) wrong = Status::error(kNullList);
  if (notification.name.size() + notification.payload.size() > kNotificationBytesMax)
    wrong = Status::error("a notification has at most " + std::to_string(kNotificationBytesMax) +
                          " bytes with its name");
  return notification;
}

/// The batch's number.
Result<uint64_t> submit(Service& service, std::span<const braid_transfer_request> requests,
                        const braid_transfer_notification* notification) {
  Status wrong;
  auto told = notification_of(notification, wrong);
  if (!wrong.ok()) return wrong;
  std::vector<Request> all;
  all.reserve(requests.size());
  for (const braid_transfer_request& each : requests) {
    if (const Status known = check_request(each); !known.ok()) return known;
    all.push_back(request_of(each));
  }
  return service.with([&](Engine& engine) { return engine.submit(all, std::move(told)); });
}

braid_transfer_outcome outcome_of(const RequestStatus& one) {
  return {one.has_ended ? static_cast<int>(one.cause) : BRAID_TRANSFER_PENDING,
          one.delivered_bytes};
}

/// Of a batch that has ended, which is forgotten.
Status take_outcomes(Service& service, uint64_t batch, braid_transfer_outcome* outcomes) {
  const auto all = service.outcomes(batch);
  if (!all.ok()) return all.status();
  std::transform(all.value().begin(), all.value().end(), outcomes, outcome_of);
  return service.forget(batch);
}

}  // namespace

namespace braid::transfer::abi {

Status check_request(const braid_transfer_request& given) {
  if (given.operation != BRAID_TRANSFER_READ && given.operation != BRAID_TRANSFER_WRITE)
    return Status::error("there is no operation " + std::to_string(given.operation),
                         "It is BRAID_TRANSFER_READ or BRAID_TRANSFER_WRITE");
  if (!is_urgency(given.urgency))
    return Status::error("there is no urgency " + std::to_string(given.urgency),
                         "It is BRAID_TRANSFER_BULK or BRAID_TRANSFER_URGENT");
  return {};
}

Request request_of(const braid_transfer_request& given) {
  Request request;
  request.segment = given.segment;
  request.operation =
      given.operation == BRAID_TRANSFER_WRITE ? Operation::kWrite : Operation::kRead;
  request.local = given.local;
  request.address = given.address;
  request.size_bytes = given.size_bytes;
  request.urgency = given.urgency == BRAID_TRANSFER_URGENT ? Urgency::kUrgent : Urgency::kBulk;
  if (given.limit_us != 0) request.deadline_ns = deadline_after(given.limit_us);
  return request;
}

}  // namespace braid::transfer::abi

braid_status braid_transfer_open_segment(braid_transfer* transfer, const char* name,
                                         uint64_t limit_us, uint64_t* segment) {
  return guarded(
      transfer,
      [&](Service& service) {
        return hand_out(service.open_segment(name, limit_us), segment, BRAID_ERROR_UNAVAILABLE);
      },
      name, segment);
}

braid_status braid_transfer_close_segment(braid_transfer* transfer, uint64_t segment) {
  return guarded(transfer, [&](Service& service) {
    return report(service.with([&](Engine& engine) { return engine.close_segment(segment); }));
  });
}

braid_status braid_transfer_ranges(braid_transfer* transfer, uint64_t segment,
                                   braid_transfer_range* ranges, size_t capacity, size_t* count) {
  return guarded(
      transfer,
      [&](Service& service) {
        const auto all = service.with([&](Engine& engine) { return engine.ranges(segment); });
        if (!all.ok()) return report(all.status());
        if (ranges == nullptr && capacity > 0) return report(BRAID_ERROR_ARGUMENT, kNullList);
        *count = all.value().size();
        for (size_t i = 0; i < std::min(*count, capacity); ++i) {
          const RangeDescription& range = all.value()[i];
          ranges[i] = {range.address, range.size_bytes, range.rights};
        }
        return BRAID_OK;
      },
      count);
}

braid_status braid_transfer_export_folder(braid_transfer* transfer, const char* name,
                                          const char* folder, int rights) {
  return guarded(
      transfer,
      [&](Service& service) {
        if (!are_rights(rights)) return report(BRAID_ERROR_ARGUMENT, kWrongRights);
        auto opened = Exports::open_folder(folder);  // without the engine: it may take long
        if (!opened.ok()) return report(opened.status());
        return report(service.with([&](Engine& engine) {
          return engine.export_folder(name, std::move(opened).value(), static_cast<Rights>(rights));
        }));
      },
      name, folder);
}

braid_status braid_transfer_open_file(braid_transfer* transfer, uint64_t segment, const char* path,
                                      int rights, uint64_t limit_us, uint64_t* file) {
  return guarded(
      transfer,
      [&](Service& service) {
        if (!are_rights(rights)) return report(BRAID_ERROR_ARGUMENT, kWrongRights);
        return hand_out(service.open_file(segment, path, static_cast<Rights>(rights), limit_us),
                        file, BRAID_ERROR_UNAVAILABLE);
      },
      path, file);
}

braid_status braid_transfer_file_bytes(braid_transfer* transfer, uint64_t file,
                                       uint64_t* size_bytes) {
  return guarded(
      transfer,
      [&](Service& service) {
        return hand_out(service.with([&](Engine& engine) { return engine.file_bytes(file); }),
                        size_bytes);
      },
      size_bytes);
}

braid_status braid_transfer_submit(braid_transfer* transfer, const braid_transfer_request* requests,
                                   size_t count, const braid_transfer_notification* notification,
                                   uint64_t* batch) {
  return guarded(
      transfer,
      [&](Service& service) {
        if (requests == nullptr && count > 0) return report(BRAID_ERROR_ARGUMENT, kNullList);
        return hand_out(submit(service, {requests, count}, notification), batch);
      },
      batch);
}

braid_status braid_transfer_submit_and_wait(braid_transfer* transfer,
                                            const braid_transfer_request* requests, size_t count,
                                            const braid_transfer_notification* notification,
                                            uint64_t limit_us, braid_transfer_outcome* outcomes,
                                            uint64_t* batch) {
  return guarded(
      transfer,
      [&](Service& service) {
        *batch = 0;
        if ((requests == nullptr || outcomes == nullptr) && count > 0)
          return report(BRAID_ERROR_ARGUMENT, kNullList);
        const auto submitted = submit(service, {requests, count}, notification);
        if (!submitted.ok()) return report(submitted.status());
        *batch = submitted.value();
        const Result<bool> has_ended = service.wait_for_batch(*batch, limit_us);
        if (!has_ended.ok() || !has_ended.value()) return report(has_ended.status());
        return report(take_outcomes(service, std::exchange(*batch, 0), outcomes));
      },
      batch);
}

braid_status braid_transfer_wait(braid_transfer* transfer, uint64_t batch, uint64_t limit_us,
                                 int* has_ended) {
  return guarded(
      transfer,
      [&](Service& service) {
        const Result<bool> waited = service.wait_for_batch(batch, limit_us);
        *has_ended = waited.ok() && waited.value();
        return report(waited.status());
      },
      has_ended);
}

braid_status braid_transfer_outcomes(braid_transfer* transfer, uint64_t batch, size_t first,
                                     braid_transfer_outcome* outcomes, size_t capacity,
                                     size_t* count) {
  return guarded(transfer, [&](Service& service) {
    if (outcomes == nullptr && capacity > 0) return report(BRAID_ERROR_ARGUMENT, kNullList);
    const auto all = service.outcomes(batch);
    if (!all.ok()) return report(all.status());
    const size_t requests = all.value().size();
    if (count != nullptr) *count = requests;
    for (size_t i = first; i < requests && i - first < capacity; ++i)
      outcomes[i - first] = outcome_of(all.value()[i]);
    return BRAID_OK;
  });
}

braid_status braid_transfer_cancel(braid_transfer* transfer, uint64_t batch) {
  return guarded(transfer, [&](Service& service) { return report(service.cancel(batch)); });
}

braid_status braid_transfer_forget(braid_transfer* transfer, uint64_t batch) {
  return guarded(transfer, [&](Service& service) { return report(service.forget(batch)); });
}

braid_status braid_transfer_event_descriptor(braid_transfer* transfer, int* descriptor) {
  return guarded(
      transfer,
      [&](Service& service) {
        *descriptor = service.event_descriptor();
        return BRAID_OK;
      },
      descriptor);
}

braid_status braid_transfer_take_ended(braid_transfer* transfer, uint64_t* batches, size_t capacity,
                                       size_t* count) {
  return guarded(
      transfer,
      [&](Service& service) {
        const std::vector<uint64_t> taken = service.take_ended(capacity);
        std::copy(taken.begin(), taken.end(), batches);
        *count = taken.size();
        return BRAID_OK;
      },
      batches, count);
}

braid_status braid_transfer_next_notification(braid_transfer* transfer, uint64_t limit_us,
                                              int* has_come, char* name, void* payload,
                                              size_t* payload_bytes, char* from) {
  return guarded(
      transfer,
      [&](Service& service) {
        const std::optional<Notified> next = service.next_notification(limit_us);
        *has_come = next.has_value();
        if (!next) return BRAID_OK;
        std::memcpy(name, next->name.c_str(), next->name.size() + 1);
        if (!next->payload.empty())
          std::memcpy(payload, next->payload.data(), next->payload.size());
        *payload_bytes = next->payload.size();
        const std::string sender = to_hex(next->from);
        if (from != nullptr) std::memcpy(from, sender.c_str(), sender.size() + 1);
        return BRAID_OK;
      },
      has_come, name, payload, payload_bytes);
}

const char* braid_transfer_cause_name(int cause) {
  if (cause == BRAID_TRANSFER_PENDING) return "pending";
  return cause == BRAID_TRANSFER_NO_CAUSE ? "no cause" : cause_name(static_cast<Cause>(cause));
}
