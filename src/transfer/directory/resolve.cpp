#include "transfer/directory/resolve.h"

#include "base/clock.h"
#include "base/try.h"
#include "transfer/directory/socket.h"
#include "transfer/directory/store.h"

namespace braid::transfer {
namespace {

Result<Descriptor> connect_by(const Name& name, uint64_t end_ns) {
  if (!name.is_bare()) return connect_to(name.at, end_ns);
  BRAID_LET(folder, socket_folder());
  return connect_to_path(folder + "/" + name.text, end_ns);
}

Result<Name> look_up(const std::string& name, const std::string& url) {
  BRAID_LET(store, open_store(url));
  BRAID_LET(value, store->get(name));
  if (value.empty()) return Status::error("no engine of this host or of the cluster has this name");
  BRAID_LET(kept, parse_name(value));
  if (kept.is_bare() || kept.incarnation == Incarnation{})
    return Status::error("the store's record of it is no address of an engine");
  return kept;
}

}  // namespace

Result<Description> resolve(const Name& name, const std::string& store,
                            const fabric::Secret& secret, uint64_t end_ns) {
  const auto because = [&](const Status& status) {
    return Status::error("segment '" + name.text + "': " + status.message());
  };
  Result<Descriptor> socket = connect_by(name, end_ns);
  if (!socket.ok() && name.is_bare() && !store.empty()) {
    const Result<Name> kept = look_up(name.text, store);
    return kept.ok() ? resolve(kept.value(), {}, secret, end_ns) : because(kept.status());
  }
  if (!socket.ok()) return because(socket.status());
  Question question;
  question.nonce = fabric::random_number();
  question.incarnation = name.incarnation;
  auto bytes = ask(socket.value(), encode(question, secret), kFrameBytesMax, end_ns);
  // An owner of an older version closes the connection.
  while (!bytes.ok() && question.version > kVersionOldest && monotonic_ns() < end_ns) {
    --question.version;
    socket = connect_by(name, end_ns);
    if (!socket.ok()) return because(socket.status());
    bytes = ask(socket.value(), encode(question, secret), kFrameBytesMax, end_ns);
  }
  if (!bytes.ok()) return because(bytes.status());
  Result<Answer> answer = decode_answer(bytes.value(), secret);
  if (!answer.ok()) return because(answer.status());
  if (answer.value().nonce != question.nonce)
    return because(Status::error("the answer is to another question"));
  if (answer.value().cause != Cause::kNone)
    return because(Status::error("another engine listens there now",
                                 "Its process has ended or was restarted: use its new name"));
  const Description& description = answer.value().description;
  if (description.version_oldest > kVersion || description.version < kVersionOldest)
    return because(
        Status::error("it speaks versions " + std::to_string(description.version_oldest) + " to " +
                      std::to_string(description.version) + " of the protocol, and this one " +
                      std::to_string(kVersionOldest) + " to " + std::to_string(kVersion)));
  return std::move(answer).value().description;
}

}  // namespace braid::transfer
