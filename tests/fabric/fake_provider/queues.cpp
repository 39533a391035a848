#include "fabric/fake_provider/queues.h"

#include <rdma/fi_errno.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "fabric/fake_provider/calls.h"
#include "fabric/fake_provider/nic.h"

namespace braid::fabric::fake {

// ---- Completions ----

void CompletionQueue::push(const Entry& entry) {
  auto place = entries.end();
  if ((entry.data.flags & FI_WRITE) != 0)
    while (place != entries.begin() && std::prev(place)->outcome == Outcome::kOk &&
           (nic->random() & 1) != 0)
      --place;
  entries.insert(place, entry);
}

namespace {

ssize_t read_completions(fid_cq* handle, void* buffer, size_t count) {
  auto& queue = *static_cast<CompletionQueue*>(handle);
  const std::lock_guard lock(queue.nic->mutex);
  queue.nic->look();
  size_t taken = 0;
  for (; taken < count && !queue.entries.empty(); ++taken, queue.entries.pop_front()) {
    const CompletionQueue::Entry& entry = queue.entries.front();
    if (entry.outcome != Outcome::kOk) break;
    std::memcpy(static_cast<std::byte*>(buffer) + taken * queue.entry_bytes, &entry.data,
                queue.entry_bytes);
  }
  if (taken > 0) return static_cast<ssize_t>(taken);
  return queue.entries.empty() ? -FI_EAGAIN : -FI_EAVAIL;
}

ssize_t read_completion_error(fid_cq* handle, fi_cq_err_entry* error, uint64_t) {
  auto& queue = *static_cast<CompletionQueue*>(handle);
  const std::lock_guard lock(queue.nic->mutex);
  if (queue.entries.empty() || queue.entries.front().outcome == Outcome::kOk) return -FI_EAGAIN;
  const CompletionQueue::Entry entry = queue.entries.front();
  queue.entries.pop_front();
  error->op_context = entry.data.op_context;
  error->flags = entry.data.flags;
  error->err = entry.outcome == Outcome::kFlushed ? FI_ECANCELED : FI_EIO;
  error->prov_errno = static_cast<int>(entry.outcome);
  error->err_data_size = 0;
  return 1;
}

const char* name_of_outcome(fid_cq*, int outcome, const void*, char*, size_t) {
  switch (static_cast<Outcome>(outcome)) {
    case Outcome::kOk: return "success";
    case Outcome::kLocalProtection: return "local protection error";
    case Outcome::kFlushed: return "flushed";
    case Outcome::kRemoteAccess: return "remote access error";
    case Outcome::kPeerGone: return "the peer does not answer";
  }
  return "unknown";
}

int close_completion_queue(fid* handle) {
  delete &object_of<CompletionQueue, fid_cq>(handle);  // owner: this queue
  return 0;
}

fi_ops completion_queue_fid = {
    sizeof(fi_ops), close_completion_queue, unsupported, unsupported, unsupported, nullptr,
    nullptr};
fi_ops_cq completion_queue_calls = {sizeof(fi_ops_cq),     read_completions, unsupported,
                                    read_completion_error, unsupported,      unsupported,
                                    unsupported,           name_of_outcome};

size_t bytes_of(fi_cq_format format) {
  if (format == FI_CQ_FORMAT_CONTEXT) return sizeof(fi_cq_entry);
  return format == FI_CQ_FORMAT_MSG ? sizeof(fi_cq_msg_entry) : sizeof(fi_cq_data_entry);
}

}  // namespace

int open_completion_queue(Nic& nic, fi_cq_attr* attributes, fid_cq** opened, void* context) {
  const bool has_tags = attributes->format == FI_CQ_FORMAT_TAGGED;
  if (has_tags || attributes->wait_obj != FI_WAIT_NONE) return -FI_ENOSYS;
  auto* queue = new CompletionQueue();  // owner: who closes it
  queue->fid = {FI_CLASS_CQ, context, &completion_queue_fid};
  queue->ops = &completion_queue_calls;
  queue->nic = &nic;
  queue->entry_bytes = bytes_of(attributes->format);
  *opened = queue;
  return 0;
}

// ---- Events ----

void EventQueue::push(Event event) {
  const std::lock_guard lock(mutex);
  events.push_back(std::move(event));
}

void EventQueue::forget(fid_t about) {
  const std::lock_guard lock(mutex);
  std::erase_if(events, [&](const Event& event) {
    if (event.about == about && event.info != nullptr) fi_freeinfo(event.info);
    return event.about == about;
  });
}

namespace {

ssize_t read_event(fid_eq* handle, uint32_t* number, void* buffer, size_t size_bytes,
                   uint64_t flags) {
  auto& queue = *static_cast<EventQueue*>(handle);
  const std::lock_guard lock(queue.mutex);
  for (Listener* listener : queue.listeners) listener->take_requests(queue.events);
  if (queue.events.empty()) return -FI_EAGAIN;
  const EventQueue::Event& event = queue.events.front();
  if (event.error != 0) return -FI_EAVAIL;
  fi_eq_cm_entry entry{};
  entry.fid = event.about;
  entry.info = event.info;
  if (size_bytes < sizeof entry) return -FI_ETOOSMALL;
  const size_t data_bytes = std::min(size_bytes - sizeof entry, event.data.size());
  *number = event.number;
  std::memcpy(buffer, &entry, sizeof entry);
  if (data_bytes > 0)
    std::memcpy(static_cast<std::byte*>(buffer) + sizeof entry, event.data.data(), data_bytes);
  if ((flags & FI_PEEK) == 0) queue.events.pop_front();
  return static_cast<ssize_t>(sizeof entry + data_bytes);
}

ssize_t wait_for_event(fid_eq* queue, uint32_t* number, void* buffer, size_t size_bytes,
                       int limit_ms, uint64_t flags) {
  for (int waited_ms = 0;; ++waited_ms) {
    const ssize_t answer = read_event(queue, number, buffer, size_bytes, flags);
    if (answer != -FI_EAGAIN || (limit_ms >= 0 && waited_ms >= limit_ms)) return answer;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

ssize_t read_event_error(fid_eq* handle, fi_eq_err_entry* error, uint64_t) {
  auto& queue = *static_cast<EventQueue*>(handle);
  const std::lock_guard lock(queue.mutex);
  if (queue.events.empty() || queue.events.front().error == 0) return -FI_EAGAIN;
  EventQueue::Event event = std::move(queue.events.front());
  queue.events.pop_front();
  queue.error_data = std::move(event.data);
  error->fid = event.about;
  error->context = event.about->context;
  error->err = event.error;
  error->prov_errno = event.error;
  error->err_data = queue.error_data.data();
  error->err_data_size = queue.error_data.size();
  return sizeof *error;
}

ssize_t write_event(fid_eq* handle, uint32_t number, const void* buffer, size_t size_bytes,
                    uint64_t) {
  EventQueue::Event event;
  event.number = number;
  if (size_bytes >= sizeof(fi_eq_entry)) event.about = static_cast<const fi_eq_entry*>(buffer)->fid;
  static_cast<EventQueue*>(handle)->push(std::move(event));
  return static_cast<ssize_t>(size_bytes);
}

const char* name_of_event_error(fid_eq*, int error, const void*, char*, size_t) {
  return fi_strerror(error);
}

int close_event_queue(fid* handle) {
  auto* queue = &object_of<EventQueue, fid_eq>(handle);
  for (const EventQueue::Event& event : queue->events)
    if (event.info != nullptr) fi_freeinfo(event.info);
  delete queue;  // owner: this queue
  return 0;
}

fi_ops event_queue_fid = {sizeof(fi_ops), close_event_queue, unsupported, unsupported,
                          unsupported,    nullptr,           nullptr};
fi_ops_eq event_queue_calls = {sizeof(fi_ops_eq), read_event,     read_event_error,
                               write_event,       wait_for_event, name_of_event_error};

}  // namespace

int open_event_queue(fid_fabric*, fi_eq_attr*, fid_eq** opened, void* context) {
  auto* queue = new EventQueue();  // owner: who closes it
  queue->fid = {FI_CLASS_EQ, context, &event_queue_fid};
  queue->ops = &event_queue_calls;
  *opened = queue;
  return 0;
}

}  // namespace braid::fabric::fake
