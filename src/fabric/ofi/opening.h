// libfabric frees its providers when the process exits, and reads them to open an endpoint. Threads
// of braid's still run then. So the exit waits for what is being opened, and nothing is opened
// afterwards.
#pragma once

namespace braid::fabric::ofi {

/// While one lives, the process does not exit, unless `may_go_on` is false: it exits already.
class Opening {
 public:
  Opening();
  ~Opening();
  Opening(const Opening&) = delete;
  Opening& operator=(const Opening&) = delete;
  bool may_go_on() const { return may_go_on_; }

 private:
  bool may_go_on_;
};

}  // namespace braid::fabric::ofi
