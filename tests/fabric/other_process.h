// The process of a wire's target (target_process.cpp), and what it is asked to do. It does nothing
// of its own accord: a domain of it that is not polled is as silent as a stopped process's.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "fabric/parcel.h"

namespace braid::fabric::test {

enum class Call : uint32_t {
  kOpen,  ///< a provider (process_rail.h): the domain's number, traits and address
  // Of a domain: its number, and what its function takes.
  kClose,
  kAddRegion,
  kRemoteRange,
  kRemoveRegion,
  kRemovalFences,
  kDrain,
  kPostReceive,
  kPoll,
  kHasCopied,
  kArm,
  kWaitDescriptor,  ///< whether there is one; then the file itself
  // Of memory.
  kAllocate,  ///< a place (places.h), a size: the memory's number and address
  kGet,       ///< a number: the bytes
  kFirst,     ///< a number: the first byte
  kPut,       ///< a number, bytes
  kFreeAll,
};

class OtherProcess {
 public:
  /// One serves all wires of this process, each after the other. A new one is started once it has
  /// ended.
  static std::shared_ptr<OtherProcess> get();
  ~OtherProcess();
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;

  /// Throws if it does not answer, and if it could not do it.
  Parcel ask(Call call, const Parcel& question = {});
  File receive_file() { return test::receive_file(socket_.get()); }

 private:
  OtherProcess();

  File socket_;
  pid_t process_ = -1;
  bool is_lost_ = false;
};

}  // namespace braid::fabric::test
