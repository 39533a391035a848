// A name of this engine in a store, kept as long as this object lives: a thread of its own renews
// it. If the store does not answer, the engine works on, and the thread puts the name there again
// once the store answers.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "transfer/directory/store.h"

namespace braid::transfer {

class Lease {
 public:
  /// `is_alive(value)`: whether the engine that holds the name still lives at `value`; if it does
  /// not, this engine takes the name. An error: another engine has the name, or the store does not
  /// answer.
  static Result<std::unique_ptr<Lease>> take(
      std::unique_ptr<Store> store, const std::string& name, const std::string& value,
      const std::function<bool(const std::string&)>& is_alive);
  /// Begins to give the name back. If the store does not answer until `end_ns` of CLOCK_MONOTONIC,
  /// the record runs out by itself.
  void give_back_by(uint64_t end_ns);
  /// Gives the name back, and waits until that is done.
  ~Lease();

 private:
  Lease(std::unique_ptr<Store> store, std::string name, std::string value);
  void end();
  void work();
  void renew();

  std::unique_ptr<Store> store_;  // the thread's, once it runs
  const std::string name_;
  const std::string value_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace braid::transfer
