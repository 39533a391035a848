// A process that posts a message to a domain of another process over shm (calling_process.h).
//
//   fabric_caller ADDRESS ENDING [TIMES]     the domain's address as hexadecimal digits
//
// libfabric answers the first post with "try again": it has asked the other process for a
// connection. Then the caller
//   dies    kills itself
//   leaves  disconnects, does all of this so many times, and lives on until it is killed
//   stays   posts again until the message has been received, so many times; its exit code is 0
//           then
// It says when it has asked, or has left, and when it has posted.
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

void say(const char* what) {
  std::puts(what);
  std::fflush(stdout);
}

}  // namespace

int main(int count, char** words) {
  if (count != 3 && count != 4) return 2;
  const std::string ending = words[2];
  const std::vector<std::byte> address = test::from_hex(words[1]);
  auto domain = ofi::open_domain(ofi::shm_quirks(), "").value();
  if (!domain->open_door().ok()) return 5;  // as engines do; only then are locks taken over
  int times = count == 4 ? std::atoi(words[3]) : 1;
  if (ending == "leaves") {
    for (; times > 0; --times) {
      Call call(*domain, address);
      if (call.post()) return 3;  // it asked for no connection
      domain->disconnect(call.peer);
    }
    say("left");
    for (;;) pause();
  }
  Call call(*domain, address);
  bool is_posted = call.post();
  if (is_posted) return 3;
  if (ending == "dies") raise(SIGKILL);
  say("asked");
  for (Completion ended;;) {
    if (!is_posted && (is_posted = call.post())) say("posted");
    if (domain->poll({&ended, 1}) == 0) continue;
    if (!ended.ok) return 4;
    if (--times == 0) return 0;
    is_posted = false;
  }
}
