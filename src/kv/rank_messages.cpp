#include "kv/rank_messages.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/byte_codec.h"
#include "base/fnv.h"

namespace braid::kv {
namespace {

using Writer = ByteWriter<uint32_t>;
using Reader = ByteReader<uint32_t>;

constexpr uint32_t kVersion = 1;
constexpr size_t kNoLimit = std::numeric_limits<uint32_t>::max();

// Before each message.
struct Envelope {
  static constexpr size_t kBytes = 24;

  uint32_t kind = 0;
  uint32_t version = kVersion;
  uint64_t size_bytes = 0;  // of the message
  uint64_t sum = 0;         // of its bytes
};

struct Kind {
  uint32_t number;
  const char* name;
  const char* maker;
};
constexpr Kind kCommands{0x636b7662, "commands", "braid_kv_take_commands"};  // "bvkc"
constexpr Kind kReport{0x726b7662, "a report", "braid_kv_worker_report"};

// Of words, the last of them filled up with zeros.
uint64_t sum_of(std::span<const std::byte> bytes) {
  uint64_t sum = kFnvStart;
  while (!bytes.empty()) {
    uint64_t word = 0;
    const size_t count = std::min(bytes.size(), sizeof word);
    std::memcpy(&word, bytes.data(), count);
    sum = fnv_step(sum, word);
    sum ^= sum >> 32;
    bytes = bytes.subspan(count);
  }
  return sum;
}

// ---- One description of each structure, for both ways ----

template <typename Archive, typename E>
void envelope_fields(Archive& archive, E& envelope) {
  archive.number(envelope.kind);
  archive.number(envelope.version);
  archive.number(envelope.size_bytes);
  archive.number(envelope.sum);
}

template <typename Archive, typename Choice>
void choice_field(Archive& archive, Choice& choice, std::remove_const_t<Choice> last) {
  archive.number(choice);
  if constexpr (requires { archive.fail(); })
    if (choice > last) archive.fail();
}

template <typename Archive, typename M>
void marks_fields(Archive& archive, M& marks) {
  archive.number(marks.step);
  archive.number(marks.down);
  archive.number(marks.up);
}

template <typename Archive, typename C>
void batch_fields(Archive& archive, C& batch) {
  choice_field(archive, batch.direction, Direction::kUp);
  choice_field(archive, batch.urgency, Urgency::kUrgent);
  archive.number(batch.mark);
  marks_fields(archive, batch.after);
  archive.list(batch.slots, kNoLimit, [&](auto& pair) {
    archive.number(pair.gpu);
    archive.number(pair.host);
  });
}

template <typename Archive, typename C>
void commands_fields(Archive& archive, C& commands) {
  archive.number(commands.group);
  archive.number(commands.rank);
  archive.number(commands.shape.gpu_slots);
  archive.number(commands.shape.host_slots);
  archive.number(commands.shape.block_bytes);
  archive.number(commands.number);
  archive.number(commands.report_seen);
  archive.number(commands.step);
  archive.list(commands.batches, kNoLimit, [&](auto& batch) { batch_fields(archive, batch); });
  marks_fields(archive, commands.compute_after);
}

template <typename Archive, typename R>
void report_fields(Archive& archive, R& report) {
  archive.number(report.group);
  archive.number(report.rank);
  archive.number(report.number);
  archive.number(report.commands_done);
  marks_fields(archive, report.passed);
  archive.list(report.failed, kNoLimit, [&](auto& failed) {
    choice_field(archive, failed.direction, Direction::kUp);
    archive.number(failed.mark);
    archive.bytes(failed.cause, kNoLimit);
  });
  archive.bytes(report.broken, kNoLimit);
  archive.number(report.cuda_result);
  archive.number(report.carried.accelerated_bytes);
  archive.number(report.carried.native_bytes);
}

template <typename Archive, typename Message>
void fields(Archive& archive, Message& message) {
  if constexpr (std::is_same_v<std::remove_const_t<Message>, Commands>)
    commands_fields(archive, message);
  else
    report_fields(archive, message);
}

template <typename Message>
std::vector<std::byte> encode(const Message& message, const Kind& kind) {
  Writer body;
  fields(body, message);
  const Envelope envelope{kind.number, kVersion, body.written().size(), sum_of(body.written())};
  Writer all;
  envelope_fields(all, envelope);
  std::vector<std::byte> bytes = all.take();
  bytes.insert(bytes.end(), body.written().begin(), body.written().end());
  return bytes;
}

template <typename Message>
Result<Message> decode(std::span<const std::byte> bytes, const Kind& kind) {
  const std::string what = std::to_string(bytes.size()) + " bytes";
  Envelope envelope;
  Reader front(bytes.first(std::min(bytes.size(), Envelope::kBytes)));
  envelope_fields(front, envelope);
  if (!front.ok() || envelope.kind != kind.number)
    return Status::error("these " + what + " do not begin as " + kind.name,
                         std::string("Hand over what ") + kind.maker + " has given, whole");
  if (envelope.version != kVersion)
    return Status::error(std::string(kind.name) + " of version " +
                             std::to_string(envelope.version) +
                             ", and this library reads version " + std::to_string(kVersion),
                         "Run the same braid in the leader and in every worker");
  const auto body = bytes.subspan(Envelope::kBytes);
  if (body.size() != envelope.size_bytes)
    return Status::error(std::string(kind.name) + " of " +
                             std::to_string(envelope.size_bytes + Envelope::kBytes) +
                             " bytes came as " + what,
                         "Hand them over whole, and alone");
  Message message;
  Reader reader(body);
  const bool is_same = sum_of(body) == envelope.sum;
  if (is_same) fields(reader, message);
  if (!is_same || !reader.ok() || !reader.is_at_end())
    return Status::error(std::string(kind.name) + " came with other bytes than were given",
                         std::string("Hand over what ") + kind.maker + " has given, unchanged");
  return message;
}

}  // namespace

std::vector<std::byte> encode(const Commands& commands) { return encode(commands, kCommands); }
std::vector<std::byte> encode(const RankReport& report) { return encode(report, kReport); }
Result<Commands> decode_commands(std::span<const std::byte> bytes) {
  return decode<Commands>(bytes, kCommands);
}
Result<RankReport> decode_report(std::span<const std::byte> bytes) {
  return decode<RankReport>(bytes, kReport);
}

}  // namespace braid::kv
