#include "transfer/directory/live_report.h"

#include "base/try.h"
#include "host/random_number.h"
#include "transfer/description.h"
#include "transfer/directory/resolve.h"
#include "transfer/sealed.h"

namespace braid::transfer {
namespace {

/// An engine with 1,000 peers and 8 rails has some megabytes to say.
constexpr size_t kTextBytesMax = 64 << 20;
constexpr size_t kAnswerBytesMax = kTextBytesMax + 4096;

struct ReportQuestion {
  uint64_t nonce = 0;
  Incarnation incarnation{};  ///< all zero: any engine that listens there
};
struct ReportAnswer {
  uint64_t nonce = 0;
  Cause cause = Cause::kNone;
  std::string text;
};

template <typename Archive, typename Q>
void fields(Archive& archive, Q& question) {
  archive.number(question.nonce);
  if constexpr (std::is_same_v<std::remove_const_t<Q>, ReportQuestion>) {
    for (auto& half : question.incarnation) archive.number(half);
  } else {
    archive.number(question.cause);
    archive.bytes(question.text, kTextBytesMax);
  }
}

template <typename T>
std::vector<std::byte> write(SealedKind kind, const T& value, const fabric::Secret& secret) {
  return seal(kind, kVersionOldest, secret, [&](Writer& writer) { fields(writer, value); });
}

template <typename T>
Result<T> read(SealedKind kind, Bytes bytes, const fabric::Secret& secret) {
  T value;
  BRAID_TRY(open_sealed(kind, bytes, secret,
                        [&](Reader& reader, uint16_t /*version*/) { fields(reader, value); }));
  return value;
}

}  // namespace

Result<std::string> ask_for_report(const Name& name, const std::string& store,
                                   const fabric::Secret& secret, uint64_t end_ns) {
  const auto because = [&](const Status& status) {
    return failure(cause_of(status), "engine '" + name.text + "': " + status.message());
  };
  // Its description first: this says who it is, and whether it can be asked at all.
  BRAID_LET(owner, resolve(name, store, secret, end_ns));
  BRAID_LET(at, find_engine(name, store, end_ns));
  const Result<Descriptor> socket = connect_to_engine(at, secret, end_ns);
  if (!socket.ok()) return because(socket.status());
  const ReportQuestion question{random_number(), owner.incarnation};
  const auto bytes = ask(socket.value(), write(SealedKind::kReportQuestion, question, secret),
                         kAnswerBytesMax, end_ns);
  if (!bytes.ok() && cause_of(bytes.status()) == Cause::kNoSegment)
    return failure(Cause::kOtherVersion,
                   "engine '" + name.text + "': its braid is older, and does not say how it does",
                   "`braid rails --explain` shows the ways to it");
  if (!bytes.ok()) return because(bytes.status());
  const auto answer = read<ReportAnswer>(SealedKind::kReportAnswer, bytes.value(), secret);
  if (!answer.ok()) return because(answer.status());
  if (answer.value().nonce != question.nonce)
    return because(failure(Cause::kNoSegment, "the answer is to another question"));
  if (answer.value().cause != Cause::kNone) return because(failure(answer.value().cause));
  return answer.value().text;
}

bool is_report_question(Bytes asked) {
  return asked.size() >= kSealedHeadBytes &&
         asked[kSealedHeadBytes - 1] == static_cast<std::byte>(SealedKind::kReportQuestion);
}

Result<std::vector<std::byte>> answer_report(Bytes asked, const fabric::Secret& secret,
                                             const Incarnation& self,
                                             const std::function<std::string()>& report) {
  BRAID_LET(question, read<ReportQuestion>(SealedKind::kReportQuestion, asked, secret));
  ReportAnswer answer{question.nonce, Cause::kNone, {}};
  if (question.incarnation != Incarnation{} && question.incarnation != self)
    answer.cause = Cause::kNoSegment;
  else
    answer.text = report();
  if (answer.text.size() > kTextBytesMax) answer = {question.nonce, Cause::kTooMuch, {}};
  return write(SealedKind::kReportAnswer, answer, secret);
}

}  // namespace braid::transfer
