// What the program reads: completions of postings, and events of connections.
#pragma once

#include <rdma/fi_cm.h>
#include <rdma/fi_eq.h>

#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "fabric/fake_provider/packet.h"

namespace braid::fabric::fake {

class Nic;

struct CompletionQueue : fid_cq {
  struct Entry {
    fi_cq_data_entry data{};
    Outcome outcome = Outcome::kOk;
  };
  Nic* nic = nullptr;
  size_t entry_bytes = sizeof(fi_cq_data_entry);
  std::deque<Entry> entries;  // under the NIC's mutex

  /// The completion of a write may overtake others.
  void push(const Entry& entry);
};

int open_completion_queue(Nic& nic, fi_cq_attr* attributes, fid_cq** queue, void* context);

class Listener;

struct EventQueue : fid_eq {
  struct Event {
    uint32_t number = 0;  // FI_CONNECTED ...
    fid_t about = nullptr;
    fi_info* info = nullptr;
    std::vector<std::byte> data;
    int error = 0;
  };
  std::mutex mutex;
  std::deque<Event> events;
  std::vector<Listener*> listeners;
  std::vector<std::byte> error_data;  // of the error that was read last

  void push(Event event);
  /// Its events are gone with it.
  void forget(fid_t about);
};

/// Who makes events while the queue is read.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual void take_requests(std::deque<EventQueue::Event>& events) = 0;
};

int open_event_queue(fid_fabric* fabric, fi_eq_attr* attributes, fid_eq** queue, void* context);

}  // namespace braid::fabric::fake
