#include "fabric/churn.h"

namespace braid::test {
namespace {

/// The driver, loaded once something lies on a GPU.
class Server final : public ServerTest {
 public:
  Server() { SetUp(); }
  void TestBody() override {}
  using ServerTest::driver;
  using ServerTest::use_gpu;
};

const Server& server() {
  static const Server server;
  server.use_gpu(0);
  return server;
}

}  // namespace

VisitMemory::VisitMemory(bool is_gpu) : is_gpu_(is_gpu) {
  if (is_gpu)
    buffer_ = std::make_unique<DeviceBuffer>(server().driver(), kVisitBytes);
  else
    host_.resize(kVisitBytes);
}

std::vector<std::byte> VisitMemory::get() const {
  if (!is_gpu_) return host_;
  std::vector<std::byte> bytes(kVisitBytes);
  MUST(server().driver(), cuMemcpyDtoH(bytes.data(), buffer_->at(), bytes.size()));
  return bytes;
}

void VisitMemory::put(const std::vector<std::byte>& bytes) {
  if (!is_gpu_) {
    host_ = bytes;
    return;
  }
  MUST(server().driver(), cuMemcpyHtoD(buffer_->at(), bytes.data(), bytes.size()));
  MUST(server().driver(), cuCtxSynchronize());
}

}  // namespace braid::test
