// An engine gives its secret to everything that listens for it, its rails of staged memory too.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "fabric/library/service.h"
#include "fabric/ofi/domain.h"
#include "fabric/staged/records.h"
#include "fabric/staged/sealing.h"
#include "support/eventually.h"
#include "topology/machine.h"

namespace braid::fabric {
namespace {

class SecretFile {
 public:
  SecretFile() {
    std::ofstream(path_) << "a secret of more than sixteen bytes";
    chmod(path_.c_str(), 0600);
  }
  ~SecretFile() { unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  const std::string path_ = testing::TempDir() + "secret." + std::to_string(getpid());
};

TEST(ServiceSecret, RailsOfStagedMemoryHearNobodyWithoutIt) {
  const SecretFile secret;
  auto opened = Service::open({.provider = "tcp;ofi_rxm",
                               .addresses = {"127.0.0.1"},
                               .secret_file = secret.path(),
                               .has_gpu_memory = true},
                              topology::Machine(), {});
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const std::unique_ptr<Service> owner = std::move(opened).value();
  const Address address = owner->with([](Engine& engine) { return engine.address(); });
  const auto place = staged::read_address(address.rails.front().name).value().place;

  const auto wire = ofi::open_domain(*ofi::find_quirks("tcp;ofi_rxm"), "127.0.0.1").value();
  std::vector<std::byte> message;
  staged::append_mark(message);
  staged::append(message, {.kind = staged::Kind::kGreeting, .number = 7, .write = 7});
  message.insert(message.end(), wire->address().begin(), wire->address().end());
  staged::Sealing({}, wire->address()).seal(message, place, 1, 1);
  const uint32_t region = wire->add_region(message, Access::kLocal).value();
  const uint32_t peer = wire->connect(place).value();
  bool is_posted = false;
  EXPECT_TRUE(test::eventually([&] {
    is_posted = is_posted || wire->post_send(peer, region, message, 1);
    Completion completion;
    (void)wire->poll({&completion, 1});
    return owner->report().counts.unauthenticated == 1;
  }));
}

}  // namespace
}  // namespace braid::fabric
