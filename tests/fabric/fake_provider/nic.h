// A network interface of the fake network: its memory, its endpoints, and who makes progress.
#pragma once

#include <rdma/fabric.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "fabric/fake_provider/regions.h"

namespace braid::fabric::fake {

/// How the two providers differ in what they move.
struct Manners {
  bool has_connections = false;  ///< an endpoint has one peer, and an error breaks it
  bool makes_progress_alone = false;
  bool orders_messages = false;
  bool immediates_take_receives = false;
  bool caches_regions = false;
};

class Nic {
 public:
  /// Endpoints. All with the mutex held.
  class Member {
   public:
    virtual ~Member() = default;
    /// Whether it has done something.
    virtual bool progress() = 0;
    /// For an answer.
    virtual bool is_waiting() const = 0;
    virtual int descriptor() const = 0;
  };

  explicit Nic(const Manners& manners);
  Nic(const Nic&) = delete;
  Nic& operator=(const Nic&) = delete;
  ~Nic();

  const Manners manners;
  std::mutex mutex;  // guards all below, the members and the completion queues
  std::mt19937_64 random;
  Regions regions;
  bool needs_descriptors = true;  // FI_MR_LOCAL
  std::set<Member*> members;
  std::vector<std::unique_ptr<Member>> closed;

  /// Those of this process. They must not be closed meanwhile.
  static std::set<Nic*> all();

  /// Something has been posted.
  void wake();
  /// What a look at a completion queue does. The mutex is held.
  void look();

 private:
  bool progress();
  void work();
  void wait();

  int wake_ = -1;
  std::atomic<bool> is_ending_ = false;
  std::thread thread_;
};

}  // namespace braid::fabric::fake
