#include "fabric/process_rail.h"

#include <algorithm>

#include "base/try.h"
#include "fabric/endpoints.h"
#include "fabric/local/domain.h"
#include "fabric/ofi/domain.h"
#include "fabric/progress_thread.h"
#include "fabric/staged/domain.h"
#include "support/server.h"

namespace braid::fabric::test {
namespace {

constexpr std::string_view kStaged = "+gpu";
constexpr std::string_view kSeveral = "+endpoints";
constexpr std::string_view kMapped = "local+mapped";

bool is_staged(const std::string& provider) { return provider.ends_with(kStaged); }

/// The driver, loaded once something lies on a GPU.
class Server final : public braid::test::ServerTest {
 public:
  Server() { SetUp(); }
  void TestBody() override {}
  using ServerTest::driver;
  using ServerTest::use_gpu;
};

const Server& server() {
  static const Server server;
  return server;
}

Result<std::unique_ptr<Domain>> open_wire(const ofi::Quirks& quirks, bool has_several) {
  BRAID_LET(wire, ofi::open_domain(quirks, "127.0.0.1"));
  if (!has_several) return std::move(wire);
  constexpr EndpointOptions kAlmostAllAreLarge{.small_write_bytes = 64};
  std::vector<std::unique_ptr<Domain>> endpoints;
  endpoints.push_back(std::move(wire));
  for (int i = 0; i < 2; ++i) {
    BRAID_LET(further, ofi::open_domain(quirks, "127.0.0.1"));
    endpoints.push_back(with_progress_thread(std::move(further)));
  }
  return join_endpoints(std::move(endpoints), kAlmostAllAreLarge);
}

}  // namespace

Result<std::unique_ptr<Domain>> open_process_rail(const std::string& provider) {
  if (provider == "local" || provider == kMapped) return local::open_domain();
  const ofi::Quirks& quirks = *ofi::find_quirks(provider.substr(0, provider.find('+')));
  BRAID_LET(wire, open_wire(quirks, provider.find(kSeveral) != std::string::npos));
  return is_staged(provider) ? staged::stage(std::move(wire)) : std::move(wire);
}

ProcessMemory::ProcessMemory(const std::string& provider, int gpu, size_t size_bytes)
    : size_bytes_(size_bytes) {
  if (is_staged(provider)) {
    server().use_gpu(gpu);
    buffer_ = std::make_unique<braid::test::DeviceBuffer>(server().driver(), size_bytes);
  } else if (provider == kMapped) {
    shared_ = local::SharedMemory::allocate(size_bytes).value();
  } else {
    host_.resize(size_bytes);
  }
  fill(std::byte{0});
}

ProcessMemory::~ProcessMemory() = default;
ProcessMemory::ProcessMemory(ProcessMemory&&) noexcept = default;

MutableBytes ProcessMemory::bytes() {
  if (shared_ != nullptr) return shared_->bytes();
  std::byte* first = buffer_ ? reinterpret_cast<std::byte*>(buffer_->at()) : host_.data();
  return {first, size_bytes_};
}

void ProcessMemory::fill(std::byte value) {
  if (buffer_ == nullptr) {
    const MutableBytes all = bytes();
    return std::fill(all.begin(), all.end(), value);
  }
  MUST(server().driver(), cuMemsetD8(buffer_->at(), static_cast<uint8_t>(value), size_bytes_));
  MUST(server().driver(), cuCtxSynchronize());
}

bool ProcessMemory::is_all(std::byte value) const {
  std::vector<std::byte> copied;
  if (buffer_ != nullptr) {
    copied.resize(size_bytes_);
    MUST(server().driver(), cuMemcpyDtoH(copied.data(), buffer_->at(), size_bytes_));
  }
  Bytes all = buffer_ != nullptr ? Bytes(copied) : Bytes(host_);
  if (shared_ != nullptr) all = shared_->bytes();
  return std::all_of(all.begin(), all.end(), [&](std::byte byte) { return byte == value; });
}

}  // namespace braid::fabric::test
