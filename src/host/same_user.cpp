#include "host/same_user.h"

#include <unistd.h>

namespace braid {
namespace {

constexpr const char* kRemedy =
    "Run both as one user, or give both engines the same secret (BRAID_FABRIC_SECRET_FILE)";

Whose whose(const Result<std::optional<uid_t>>& user) {
  if (!user.ok()) return Whose::kUnknown;
  if (!user.value()) return Whose::kNobodys;
  return is_our_user(*user.value()) ? Whose::kOurs : Whose::kAnotherUsers;
}

}  // namespace

bool is_our_user(uid_t user) { return user == geteuid() || user == 0; }

Whose whose_listener(const TcpEnd& at) {
  const Result<bool> is_here = at.is_here();
  if (!is_here.ok()) return Whose::kUnknown;
  return is_here.value() ? whose(listening_user(at)) : Whose::kAnotherHosts;
}

Whose whose_connection(const TcpEnd& its, const TcpEnd& own) {
  const Result<bool> is_here = its.is_here();
  if (!is_here.ok()) return Whose::kUnknown;
  return is_here.value() ? whose(connected_user(its, own)) : Whose::kAnotherHosts;
}

bool is_admitted(Admits admits, Whose whose) {
  if (admits == Admits::kAnybody || whose == Whose::kOurs) return true;
  return admits == Admits::kOtherHosts && whose == Whose::kAnotherHosts;
}

Status refusal(Whose whose, const std::string& who, const TcpEnd& at) {
  const std::string at_text = " at " + at.text();
  switch (whose) {
    case Whose::kAnotherUsers:
      return Status::error(who + at_text + " is another user's process", kRemedy);
    case Whose::kAnotherHosts:
      return Status::error(who + at_text + " is on another host, and there is no secret", kRemedy);
    case Whose::kUnknown:
      return Status::error(
          who + at_text + " may be another user's process: the kernel does not say",
          "Give both engines the same secret (BRAID_FABRIC_SECRET_FILE), and this process enough "
          "file descriptors (ulimit -n)");
    default: return Status::error("nobody listens" + at_text);
  }
}

}  // namespace braid
