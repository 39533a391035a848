// shm: several links to one address. libfabric has one place for it, in which the memory of another
// process is mapped.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "fabric/contract.h"
#include "fabric/ofi/domain.h"
#include "fabric/ofi/quirks.h"
#include "fabric/telling_process.h"

namespace braid::fabric {
namespace {

constexpr size_t kBuffers = 8, kBufferBytes = 4096;

/// Of the other process.
struct Target {
  test::End end;
  std::vector<std::byte> buffers = std::vector<std::byte>(kBuffers * kBufferBytes);

  std::string begin() {
    end.domain = ofi::open_domain(ofi::shm_quirks(), "").value();
    const uint32_t into = end.domain->add_region(buffers, Access::kLocal).value();
    for (uint64_t i = 0; i < kBuffers; ++i)
      (void)end.domain->post_receive(
          into, MutableBytes(buffers).subspan(i * kBufferBytes, kBufferBytes), i);
    const Bytes address = end.domain->address();
    return {reinterpret_cast<const char*>(address.data()), address.size()};
  }
};

TEST(RepeatedAddressTest, ALinkOutlivesAnotherOneToTheSameProcess) {
  Target target;
  const test::TellingProcess other([&] { return target.begin(); }, [&] { target.end.poll(); });
  ASSERT_FALSE(other.told().empty());
  test::End writer;
  writer.domain = ofi::open_domain(ofi::shm_quirks(), "").value();
  std::vector<std::byte> message(100, std::byte{7});
  const uint32_t region = writer.domain->add_region(message, Access::kLocal).value();
  const Bytes address(reinterpret_cast<const std::byte*>(other.told().data()), other.told().size());
  const uint32_t old = writer.domain->connect(address).value();
  const uint32_t peer = writer.domain->connect(address).value();
  const auto arrives = [&](uint32_t to, uint64_t context) {
    bool is_posted = false;
    for (test::Patience patience(2'000'000); !patience.is_over();) {
      is_posted = is_posted || writer.domain->post_send(to, region, message, context);
      writer.poll();
      if (writer.ended.contains(context)) return writer.ended[context] == std::vector{true};
    }
    return false;
  };
  ASSERT_TRUE(arrives(old, 1));
  ASSERT_TRUE(arrives(peer, 2));
  writer.domain->disconnect(old);
  EXPECT_TRUE(arrives(peer, 3));
  EXPECT_TRUE(arrives(writer.domain->connect(address).value(), 4));
}

}  // namespace
}  // namespace braid::fabric
