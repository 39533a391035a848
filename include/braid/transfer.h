// Start here to link braid's transfer engine from C++17. A program says which bytes to move; braid
// finds the way, sprays them over every rail and heals. A thin layer over transfer_abi.h, which
// describes each call: ownership, blocking, and what an end means.
//
//   braid::Transfer transfer = braid::Transfer::open({}).value();
//   auto buffer = transfer.register_memory(data, size, {});
//   auto there = transfer.open_segment("braid://10.0.0.7:4750", limit).value();
//   auto batch = transfer.submit({{there, braid::Transfer::Operation::kRead, to, from, size}});
//   auto ended = transfer.wait(batch.value(), limit);
//   for (const auto& outcome : transfer.outcomes(batch.value()).value()) ...
//
// These answers are Results: ask ok() before value(), which throws if there was an error. Else only
// containers may throw. A Transfer owns its engine. Threads: see transfer_abi.h.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "braid/c_calls.h"
#include "braid/status.h"
#include "braid/transfer_abi.h"

namespace braid {

class Transfer : detail::CCalls<braid_transfer_last_error, nullptr, braid_transfer_last_cause> {
 public:
  enum class Buffer : uint64_t {};
  enum class Segment : uint64_t {};
  enum class Batch : uint64_t {};
  using Limit = std::chrono::microseconds;

  enum class Operation { kRead = BRAID_TRANSFER_READ, kWrite = BRAID_TRANSFER_WRITE };
  enum class Urgency { kBulk = BRAID_TRANSFER_BULK, kUrgent = BRAID_TRANSFER_URGENT };
  enum class Form {
    kText = BRAID_TRANSFER_TEXT,
    kJson = BRAID_TRANSFER_JSON,
    kPrometheus = BRAID_TRANSFER_PROMETHEUS
  };
  enum class Cause {
    kDone = BRAID_TRANSFER_DONE,
    kNoSegment = BRAID_TRANSFER_NO_SEGMENT,
    kLocalMemory = BRAID_TRANSFER_LOCAL_MEMORY,
    kOutside = BRAID_TRANSFER_OUTSIDE,
    kNotAllowed = BRAID_TRANSFER_NOT_ALLOWED,
    kNoFile = BRAID_TRANSFER_NO_FILE,
    kFileError = BRAID_TRANSFER_FILE_ERROR,
    kDeadline = BRAID_TRANSFER_DEADLINE,
    kCancelled = BRAID_TRANSFER_CANCELLED,
    kPeerLost = BRAID_TRANSFER_PEER_LOST,
    kTooMuch = BRAID_TRANSFER_TOO_MUCH,
    kOtherVersion = BRAID_TRANSFER_OTHER_VERSION,
    kWaysFailed = BRAID_TRANSFER_WAYS_FAILED,
    kGpuError = BRAID_TRANSFER_GPU_ERROR,
    kNoWay = BRAID_TRANSFER_NO_WAY,
    kOtherSecret = BRAID_TRANSFER_OTHER_SECRET,
    kNoStore = BRAID_TRANSFER_NO_STORE,
    kNoSpace = BRAID_TRANSFER_NO_SPACE,
    kReadOnly = BRAID_TRANSFER_READ_ONLY,
    kDeviceError = BRAID_TRANSFER_DEVICE_ERROR,
    kStoreRefuses = BRAID_TRANSFER_STORE_REFUSES,
    kPending = BRAID_TRANSFER_PENDING,
    kNoCause = BRAID_TRANSFER_NO_CAUSE
  };

  struct Options {
    std::string name = {};                    ///< for other engines of this host; empty: none
    std::string listen = {};                  ///< host:port; empty: first rail's address, any port
    std::vector<std::string> addresses = {};  ///< one for each network rail; none: by `nics`
    std::string nics = {};                    ///< "eth0,eth1" or "^docker0"
    std::vector<std::string> providers = {};  ///< empty: mapped memory, shm if available, and tcp
    std::string secret_file = {};             ///< empty: BRAID_FABRIC_SECRET_FILE names it
    bool allow_unauthenticated = false;
    bool is_pinned = true;
    /// "redis://10.0.0.1:6379", "etcd://10.0.0.1:2379", or with "USER:PASSWORD@" before the host;
    /// empty: the value of BRAID_TRANSFER_STORE.
    std::string store = {};
    bool gpu_memory = false;  ///< GPU memory may be registered, see transfer_abi.h
  };
  /// What peers may do.
  struct Rights {
    bool may_read = false;
    bool may_write = false;
  };
  struct Allocated {
    void* memory = nullptr;
    Buffer buffer{};
  };
  struct Range {
    uint64_t address = 0;
    uint64_t size_bytes = 0;
    Rights rights;
  };
  struct Request {
    Segment segment{};
    Operation operation = Operation::kRead;
    void* local = nullptr;
    uint64_t address = 0;
    uint64_t size_bytes = 0;
    Urgency urgency = Urgency::kBulk;
    Limit limit{0};  ///< 0: none; below 0, or 1 us: it has passed
  };
  struct Notification {
    Segment segment{};
    std::string name;
    std::vector<std::byte> payload = {};
  };
  struct Notified {
    std::string from;  ///< the sender's incarnation
    std::string name;
    std::vector<std::byte> payload;
  };
  struct Outcome {
    Cause cause = Cause::kPending;
    uint64_t delivered_bytes = 0;
    bool is_done() const { return cause == Cause::kDone; }
  };

  static Result<Transfer> open(const Options& options) {
    const std::vector<const char*> addresses = pointers(options.addresses);
    const std::vector<const char*> providers = pointers(options.providers);
    const braid_transfer_options all{sizeof(braid_transfer_options),
                                     pointer(options.name),
                                     pointer(options.listen),
                                     addresses.data(),
                                     addresses.size(),
                                     pointer(options.nics),
                                     providers.data(),
                                     providers.size(),
                                     pointer(options.secret_file),
                                     options.allow_unauthenticated ? 1 : 0,
                                     options.is_pinned ? 0 : 1,
                                     pointer(options.store),
                                     options.gpu_memory ? 1 : 0};
    braid_transfer* transfer = nullptr;
    if (const Status failed = status_of(braid_transfer_open(&all, &transfer)); !failed.ok())
      return failed;
    return Transfer(transfer);
  }

  /// The name by which others open this engine.
  Result<std::string> name() {
    return text([&](char* buffer, size_t size_bytes, size_t* needed_bytes) {
      return braid_transfer_name(get(), buffer, size_bytes, needed_bytes);
    });
  }

  Result<Buffer> register_memory(void* memory, size_t size_bytes, Rights rights) {
    return numbered<Buffer>([&](uint64_t* buffer) {
      return braid_transfer_register_memory(get(), memory, size_bytes, bits(rights), buffer);
    });
  }
  Result<Allocated> allocate_memory(size_t size_bytes, Rights rights) {
    void* memory = nullptr;
    uint64_t buffer = 0;
    if (const Status failed = status_of(
            braid_transfer_allocate_memory(get(), size_bytes, bits(rights), &memory, &buffer));
        !failed.ok())
      return failed;
    return Allocated{memory, Buffer{buffer}};
  }
  Status unregister_memory(Buffer buffer, Limit limit) {
    return status_of(braid_transfer_unregister_memory(get(), number(buffer), us(limit)));
  }

  Result<Segment> open_segment(const std::string& name, Limit limit) {
    return numbered<Segment>([&](uint64_t* segment) {
      return braid_transfer_open_segment(get(), name.c_str(), us(limit), segment);
    });
  }
  Status close_segment(Segment segment) {
    return status_of(braid_transfer_close_segment(get(), number(segment)));
  }
  /// Peers see its regular files as "name/path".
  Status export_folder(const std::string& name, const std::string& folder, Rights rights) {
    return status_of(
        braid_transfer_export_folder(get(), name.c_str(), folder.c_str(), bits(rights)));
  }
  /// Opens a file that the segment's owner has exported: a segment whose addresses are positions.
  Result<Segment> open_file(Segment segment, const std::string& path, Rights wanted, Limit limit) {
    return numbered<Segment>([&](uint64_t* file) {
      return braid_transfer_open_file(get(), number(segment), path.c_str(), bits(wanted), us(limit),
                                      file);
    });
  }
  /// The size of the file when it was opened.
  Result<uint64_t> file_bytes(Segment file) {
    uint64_t size_bytes = 0;
    return result_of(braid_transfer_file_bytes(get(), number(file), &size_bytes), size_bytes);
  }
  /// The ranges that were registered when the segment was opened.
  Result<std::vector<Range>> ranges(Segment segment) {
    std::vector<braid_transfer_range> rows;
    size_t count = 0;
    do {
      rows.resize(count);
      if (const Status failed = status_of(
              braid_transfer_ranges(get(), number(segment), rows.data(), rows.size(), &count));
          !failed.ok())
        return failed;
    } while (count > rows.size());
    rows.resize(count);
    std::vector<Range> all;
    for (const braid_transfer_range& row : rows)
      all.push_back({row.address,
                     row.size_bytes,
                     {(row.rights & BRAID_TRANSFER_MAY_READ) != 0,
                      (row.rights & BRAID_TRANSFER_MAY_WRITE) != 0}});
    return all;
  }

  /// A fault of one request affects the outcome of that request alone.
  Result<Batch> submit(const std::vector<Request>& requests,
                       const std::optional<Notification>& notification = std::nullopt) {
    const std::vector<braid_transfer_request> all = rows(requests);
    const braid_transfer_notification told = row(notification);
    return numbered<Batch>([&](uint64_t* batch) {
      return braid_transfer_submit(get(), all.data(), all.size(), notification ? &told : nullptr,
                                   batch);
    });
  }
  /// True if all its requests have ended by the limit.
  Result<bool> wait(Batch batch, Limit limit) {
    int has_ended = 0;
    if (const Status failed =
            status_of(braid_transfer_wait(get(), number(batch), us(limit), &has_ended));
        !failed.ok())
      return failed;
    return has_ended != 0;
  }
  /// One outcome for each request.
  Result<std::vector<Outcome>> outcomes(Batch batch) {
    size_t count = 0;
    if (const Status failed =
            status_of(braid_transfer_outcomes(get(), number(batch), 0, nullptr, 0, &count));
        !failed.ok())
      return failed;
    std::vector<braid_transfer_outcome> all(count);
    if (const Status failed = status_of(
            braid_transfer_outcomes(get(), number(batch), 0, all.data(), all.size(), nullptr));
        !failed.ok())
      return failed;
    return outcomes_of(all);
  }
  /// Either has a value: the outcomes of a batch that has ended by the limit and is forgotten, or
  /// the number of one that goes on.
  struct Waited {
    std::optional<std::vector<Outcome>> outcomes;
    std::optional<Batch> batch;
  };
  /// submit, wait, outcomes and forget in one call.
  Result<Waited> submit_and_wait(const std::vector<Request>& requests, Limit limit,
                                 const std::optional<Notification>& notification = std::nullopt) {
    const std::vector<braid_transfer_request> all = rows(requests);
    const braid_transfer_notification told = row(notification);
    std::vector<braid_transfer_outcome> outcomes(all.size());
    uint64_t batch = 0;
    if (const Status failed = status_of(braid_transfer_submit_and_wait(
            get(), all.data(), all.size(), notification ? &told : nullptr, us(limit),
            outcomes.data(), &batch));
        !failed.ok())
      return failed;
    if (batch != 0) return Waited{std::nullopt, static_cast<Batch>(batch)};
    return Waited{outcomes_of(outcomes), std::nullopt};
  }
  Status cancel(Batch batch) { return status_of(braid_transfer_cancel(get(), number(batch))); }
  /// Forgets a batch that has ended.
  Status forget(Batch batch) { return status_of(braid_transfer_forget(get(), number(batch))); }

  /// Readable while ended batches or notifications have not been taken. The Transfer owns it.
  Result<int> event_descriptor() {
    int descriptor = -1;
    return result_of(braid_transfer_event_descriptor(get(), &descriptor), descriptor);
  }
  Result<std::vector<Batch>> take_ended(size_t count_max = 64) {
    std::vector<uint64_t> numbers(count_max);
    size_t count = 0;
    if (const Status failed =
            status_of(braid_transfer_take_ended(get(), numbers.data(), count_max, &count));
        !failed.ok())
      return failed;
    std::vector<Batch> batches;
    for (size_t i = 0; i < count; ++i) batches.push_back(Batch{numbers[i]});
    return batches;
  }
  /// The next notification; nullopt if none has come by the limit.
  Result<std::optional<Notified>> next_notification(Limit limit) {
    constexpr size_t kBytes = BRAID_TRANSFER_NOTIFICATION_BYTES;
    std::vector<char> name(kBytes + 1), from(33);
    std::vector<std::byte> payload(kBytes);
    size_t size_bytes = 0;
    int has_come = 0;
    if (const Status failed = status_of(braid_transfer_next_notification(
            get(), us(limit), &has_come, name.data(), payload.data(), &size_bytes, from.data()));
        !failed.ok())
      return failed;
    if (has_come == 0) return std::optional<Notified>();
    payload.resize(size_bytes);
    return std::optional<Notified>(Notified{from.data(), name.data(), std::move(payload)});
  }

  /// The ways that such a request would have now, and the reason for the one that it takes.
  Result<std::string> explain(Segment segment, uint64_t size_bytes, Urgency urgency, Form form) {
    return text([&](char* buffer, size_t buffer_bytes, size_t* needed_bytes) {
      return braid_transfer_explain(get(), number(segment), size_bytes, static_cast<int>(urgency),
                                    static_cast<int>(form), buffer, buffer_bytes, needed_bytes);
    });
  }
  /// The same for one request, with the hops of each way.
  Result<std::string> explain(const Request& request, Form form) {
    const braid_transfer_request asked = row(request);
    return text([&](char* buffer, size_t buffer_bytes, size_t* needed_bytes) {
      return braid_transfer_explain_request(get(), &asked, static_cast<int>(form), buffer,
                                            buffer_bytes, needed_bytes);
    });
  }
  Result<std::string> report(Form form) {
    return text([&](char* buffer, size_t buffer_bytes, size_t* needed_bytes) {
      return braid_transfer_report(get(), static_cast<int>(form), buffer, buffer_bytes,
                                   needed_bytes);
    });
  }
  /// Which RDMA devices of this host are near which memory, as JSON.
  static Result<std::string> topology(const std::vector<std::string>& devices = {}) {
    const std::vector<const char*> all = pointers(devices);
    return text([&](char* buffer, size_t buffer_bytes, size_t* needed_bytes) {
      return braid_transfer_topology(all.data(), all.size(), buffer, buffer_bytes, needed_bytes);
    });
  }
  static const char* cause_name(Cause cause) {
    return braid_transfer_cause_name(static_cast<int>(cause));
  }

  /// The cause of a call's error, such as that of `open_segment`.
  static Cause cause_of(const Status& error) { return static_cast<Cause>(error.cause()); }

  /// For calling the C interface with the same engine; null after it was moved from.
  braid_transfer* get() const { return transfer_.get(); }

 private:
  struct Close {
    void operator()(braid_transfer* transfer) const { braid_transfer_close(transfer); }
  };

  explicit Transfer(braid_transfer* transfer) : transfer_(transfer) {}

  /// 0 would be none; 1 stands for a deadline that has passed.
  static uint64_t deadline_us(Limit limit) {
    return limit.count() == 0 ? 0 : us(std::max(limit, Limit{1}));
  }
  static int bits(Rights rights) {
    return (rights.may_read ? BRAID_TRANSFER_MAY_READ : 0) |
           (rights.may_write ? BRAID_TRANSFER_MAY_WRITE : 0);
  }
  static braid_transfer_request row(const Request& request) {
    return {number(request.segment),
            request.local,
            request.address,
            request.size_bytes,
            static_cast<int>(request.operation),
            static_cast<int>(request.urgency),
            deadline_us(request.limit)};
  }
  static std::vector<braid_transfer_request> rows(const std::vector<Request>& requests) {
    std::vector<braid_transfer_request> all;
    all.reserve(requests.size());
    for (const Request& each : requests) all.push_back(row(each));
    return all;
  }
  static braid_transfer_notification row(const std::optional<Notification>& notification) {
    if (!notification) return {};
    return {number(notification->segment), notification->name.c_str(), notification->payload.data(),
            notification->payload.size()};
  }
  static std::vector<Outcome> outcomes_of(const std::vector<braid_transfer_outcome>& outcomes) {
    std::vector<Outcome> all;
    all.reserve(outcomes.size());
    for (const braid_transfer_outcome& each : outcomes)
      all.push_back({static_cast<Cause>(each.cause), each.delivered_bytes});
    return all;
  }
  static const char* pointer(const std::string& text) {
    return text.empty() ? nullptr : text.c_str();
  }
  static std::vector<const char*> pointers(const std::vector<std::string>& texts) {
    std::vector<const char*> all;
    for (const std::string& each : texts) all.push_back(each.c_str());
    return all;
  }

  std::unique_ptr<braid_transfer, Close> transfer_;
};

}  // namespace braid
