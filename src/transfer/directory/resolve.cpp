#include "transfer/directory/resolve.h"

#include "base/clock.h"
#include "base/try.h"
#include "host/random_number.h"
#include "host/same_user.h"
#include "transfer/directory/socket.h"
#include "transfer/directory/store.h"
#include "transfer/failure.h"

namespace braid::transfer {
namespace {

Result<Name> look_up(const std::string& name, const std::string& url, uint64_t end_ns) {
  BRAID_LET(store, open_store(url));
  BRAID_LET(value, store->get(name, end_ns));
  if (value.empty())
    return failure(Cause::kNoSegment, "no engine of this host or of the cluster has this name");
  return engine_of_record(value);
}

/// Asks one question in that version. An owner of an older braid closes the connection if it does
/// not know the version: kNoSegment.
Result<Answer> ask_in(uint16_t version, const Name& name, const Descriptor& socket,
                      const fabric::Secret& secret, uint64_t end_ns) {
  Question question;
  question.nonce = random_number();
  question.incarnation = name.incarnation;
  question.version = version;
  BRAID_LET(bytes, ask(socket, encode(question, secret), kFrameBytesMax, end_ns));
  BRAID_LET(answer, decode_answer(bytes, secret));
  if (answer.nonce != question.nonce)
    return failure(Cause::kNoSegment, "the answer is to another question");
  return answer;
}

/// Looks at who listens once the connection stands: that is who has it.
Status check_user(const Descriptor& socket) {
  const auto at = TcpEnd::peer_of(socket.get());
  if (!at) return failure(Cause::kPeerLost, "the peer has closed the connection");
  const Whose whose = whose_listener(*at);
  if (is_admitted(Admits::kOtherHosts, whose)) return {};
  if (whose == Whose::kNobodys)
    return failure(Cause::kNoSegment, "nobody listens at " + at->text() + " any more");
  return failure(Cause::kNotAllowed, refusal(whose, "the engine", *at).message());
}

Status check(const Answer& answer) {
  if (answer.cause == Cause::kNoSegment)
    return failure(answer.cause, "another engine listens there now",
                   "Its process has ended or was restarted: use its new name");
  const Description& description = answer.description;
  const bool is_spoken =
      description.version_oldest <= kVersion && description.version >= kVersionOldest;
  if (answer.cause == Cause::kOtherVersion || !is_spoken)
    return failure(Cause::kOtherVersion,
                   "it speaks versions " + std::to_string(description.version_oldest) + " to " +
                       std::to_string(description.version) + " of the protocol, and this one " +
                       std::to_string(kVersionOldest) + " to " + std::to_string(kVersion),
                   "Upgrade the older side");
  return answer.cause == Cause::kNone ? Status() : failure(answer.cause);
}

/// The version to ask in after this answer. Owners that do not say which versions they know close
/// the connection, and are asked in one version after the other.
uint16_t next_version(uint16_t version, const Result<Answer>& answer) {
  if (!answer.ok()) return cause_of(answer.status()) == Cause::kNoSegment ? version - 1 : 0;
  const uint16_t theirs = answer.value().description.version;
  return answer.value().cause == Cause::kOtherVersion && theirs < version ? theirs : 0;
}

/// Asks in one version after the other, until they know one there.
Result<Answer> ask_engine(const Name& at, const fabric::Secret& secret, uint64_t end_ns) {
  for (uint16_t version = kVersion;;) {
    BRAID_LET(socket, connect_to_engine(at, secret, end_ns));
    Result<Answer> answer = ask_in(version, at, socket, secret, end_ns);
    version = next_version(version, answer);
    if (version < kVersionOldest || monotonic_ns() >= end_ns) return answer;
  }
}

}  // namespace

/// Whatever is wrong with the value, nobody who reads this has written it.
Result<Name> engine_of_record(const std::string& value) {
  Result<Name> kept = parse_name(value);
  if (!kept.ok() || kept.value().is_bare() || kept.value().incarnation == Incarnation{})
    return failure(Cause::kNoSegment, "the store's record of it is no address of an engine");
  return kept;
}

Result<Description> ask_for_description(const Name& engine, const fabric::Secret& secret,
                                        uint64_t end_ns) {
  BRAID_LET(answer, ask_engine(engine, secret, end_ns));
  BRAID_TRY(check(answer));
  return std::move(answer.description);
}

bool has_ended(const Name& engine, const fabric::Secret& secret, uint64_t end_ns) {
  if (is_refused(engine.at, end_ns)) return true;
  const Result<Answer> answer = ask_engine(engine, secret, end_ns);
  return answer.ok() && answer.value().cause == Cause::kNoSegment;
}

Result<Descriptor> connect_to_engine(const Name& name, const fabric::Secret& secret,
                                     uint64_t end_ns) {
  if (name.is_bare()) {
    BRAID_LET(folder, socket_folder());  // of this user
    return connect_to_path(folder + "/" + name.text, end_ns);
  }
  BRAID_LET(socket, connect_to(name.at, end_ns));
  if (!secret.is_set()) BRAID_TRY(check_user(socket));
  return std::move(socket);
}

Result<Name> find_engine(const Name& name, const std::string& store, uint64_t end_ns) {
  if (!name.is_bare() || store.empty()) return name;
  // A host without a folder for sockets has no engine with a name, but the cluster may have it.
  const Result<std::string> folder = socket_folder();
  if (!folder.ok()) return look_up(name.text, store, end_ns);
  const Result<bool> is_here = is_listened_at(folder.value() + "/" + name.text);
  const bool is_unseen = !is_here.ok() && cause_of(is_here.status()) == Cause::kTooMuch;
  if (is_unseen || (is_here.ok() && is_here.value())) return name;
  return look_up(name.text, store, end_ns);
}

Result<Description> resolve(const Name& name, const std::string& store,
                            const fabric::Secret& secret, uint64_t end_ns) {
  const auto because = [&](const Status& status) {
    const bool is_unknown = name.is_bare() && cause_of(status) == Cause::kNoSegment;
    return failure(cause_of(status), "segment '" + name.text + "': " + status.message(),
                   is_unknown ? "`braid segments` lists the names that can be opened here" : "");
  };
  const Result<Name> found = find_engine(name, store, end_ns);
  if (!found.ok()) return because(found.status());
  Result<Description> described = ask_for_description(found.value(), secret, end_ns);
  if (!described.ok()) return because(described.status());
  return described;
}

}  // namespace braid::transfer
