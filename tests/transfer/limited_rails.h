// Two network namespaces with links of little capacity between them. The process that asks moves
// into one of them; owners run in the other one (owner.h, netns=).
#pragma once

#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace braid::transfer::test {

class LimitedRails {
 public:
  explicit LimitedRails(int rails, const std::string& rate)
      : there_("braidl" + std::to_string(getpid())) {
    if (geteuid() != 0 || unshare(CLONE_NEWNET) != 0 || !run("ip netns add " + there_)) return;
    is_up_ = run("ip link set lo up");
    for (int rail = 0; rail < rails; ++rail) {
      const std::string number = std::to_string(rail), link = "braidl" + number, peer = link + "p",
                        net = "10.215." + number + ".";
      is_up_ =
          is_up_ &&
          run("ip link add " + link + " type veth peer name " + peer + " netns " + there_) &&
          run("ip address add " + net + "1/24 dev " + link) && run("ip link set " + link + " up") &&
          run("ip -n " + there_ + " address add " + net + "2/24 dev " + peer) &&
          run("ip -n " + there_ + " link set " + peer + " up") &&
          run("tc qdisc add dev " + link + " root tbf rate " + rate + " burst 256kb latency 50ms");
    }
  }
  ~LimitedRails() { (void)run("ip netns delete " + there_); }
  LimitedRails(const LimitedRails&) = delete;
  LimitedRails& operator=(const LimitedRails&) = delete;

  /// False: it needs root, network namespaces, iproute2 and the kernel's tbf.
  bool is_up() const { return is_up_; }
  const std::string& there() const { return there_; }
  static std::string here_address(int rail) { return "10.215." + std::to_string(rail) + ".1"; }
  static std::string there_address(int rail) { return "10.215." + std::to_string(rail) + ".2"; }

 private:
  static bool run(const std::string& command) {
    return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
  }

  const std::string there_;
  bool is_up_ = false;
};

}  // namespace braid::transfer::test
