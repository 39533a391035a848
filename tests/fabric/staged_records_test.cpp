// What staged domains say of their rings: the doors at all endpoints survive the way, and nothing
// that is cut or made up does harm.
#include "fabric/staged/records.h"

#include <gtest/gtest.h>

#include "fabric/endpoints.h"

namespace braid::fabric::staged {
namespace {

using Addresses = std::vector<std::vector<std::byte>>;

std::vector<std::byte> message_of(const Addresses& addresses) {
  std::vector<std::byte> message;
  append_mark(message);
  append(message, {.kind = Kind::kRing, .ok = true, .session = 7});
  const std::vector<Bytes> all(addresses.begin(), addresses.end());
  append_addresses(message, all);
  return message;
}

Addresses some_addresses(size_t count, size_t size_bytes) {
  Addresses all;
  for (size_t i = 0; i < count; ++i) all.emplace_back(size_bytes + i, static_cast<std::byte>(i));
  return all;
}

TEST(StagedRecords, ARingNamesItsDoorAtAllEndpoints) {
  const Addresses all = some_addresses(kEndpointsMax, 60);
  EXPECT_EQ(read_message(message_of(all))->addresses, all);
}

TEST(StagedRecords, AListThatIsCutOrTooLongIsRefused) {
  const std::vector<std::byte> whole = message_of(some_addresses(2, 60));
  const size_t first = kMarkBytes + kRecordBytes, second = first + 61;
  for (size_t size_bytes = first; size_bytes < whole.size(); ++size_bytes)
    EXPECT_EQ(read_message(Bytes(whole).first(size_bytes)).has_value(), size_bytes == second)
        << size_bytes;
  EXPECT_FALSE(read_message(message_of(some_addresses(kEndpointsMax + 1, 1))));
  EXPECT_FALSE(read_message(message_of({{}}))) << "an address without bytes";
}

}  // namespace
}  // namespace braid::fabric::staged
