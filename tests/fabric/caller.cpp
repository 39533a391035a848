// A process that posts one message to a domain of another process over shm, for
// connection_request_test.cpp.
//
//   fabric_caller ADDRESS ENDING [TIMES]     the domain's address as hexadecimal digits
//
// libfabric answers the first post with "try again": it has asked the other process for a
// connection. Then the caller
//   dies    kills itself
//   leaves  disconnects, does all of this so many times, and lives on until it is killed
//   stays   posts again until the message has been received; its exit code is 0 then
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "fabric/ofi/domain.h"
#include "fabric/order.h"

using namespace braid::fabric;

namespace {

struct Call {
  explicit Call(Domain& from, Bytes address) : domain(from), peer(from.connect(address).value()) {}
  bool post() { return domain.post_send(peer, region, message, 1); }

  Domain& domain;
  const uint32_t peer;
  std::vector<std::byte> message = std::vector<std::byte>(100, std::byte{7});
  const uint32_t region = domain.add_region(message, Access::kLocal).value();
};

}  // namespace

int main(int count, char** words) {
  if (count != 3 && count != 4) return 2;
  const std::string ending = words[2];
  const std::vector<std::byte> address = test::from_hex(words[1]);
  auto domain = ofi::open_domain(ofi::shm_quirks(), "").value();
  if (ending == "leaves") {
    for (int times = count == 4 ? std::atoi(words[3]) : 1; times > 0; --times) {
      Call call(*domain, address);
      if (call.post()) return 3;  // it asked for no connection
      domain->disconnect(call.peer);
    }
    std::puts("left");
    std::fflush(stdout);
    for (;;) pause();
  }
  Call call(*domain, address);
  bool is_posted = call.post();
  if (is_posted) return 3;
  if (ending == "dies") raise(SIGKILL);
  for (Completion ended;;) {
    is_posted = is_posted || call.post();
    if (domain->poll({&ended, 1}) == 1) return ended.ok ? 0 : 4;
  }
}
