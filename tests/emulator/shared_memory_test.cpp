// Mapped memory that was exported to another process, which has an emulated server of its own.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "memory_calls.h"
#include "pull_rig.h"

namespace braid::emulator_test {
namespace {

constexpr size_t kPiece = 2u << 20;

/// A process that exports memory of GPU 1, fills it when it is told to, and ends.
class Exporter {
 public:
  explicit Exporter(const std::vector<uint8_t>& data) {
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends_) != 0) return;
    process_ = fork();
    close(ends_[process_ == 0 ? 0 : 1]);
    if (process_ == 0) run(data);
  }
  ~Exporter() {
    close(ends_[0]);
    waitpid(process_, nullptr, 0);
  }
  int receive() const {
    char byte = 0, control[CMSG_SPACE(sizeof(int))] = {};
    iovec part{&byte, 1};
    msghdr message{nullptr, 0, &part, 1, control, sizeof control, 0};
    int file = -1;
    if (recvmsg(ends_[0], &message, 0) == 1 && CMSG_FIRSTHDR(&message) != nullptr)
      std::memcpy(&file, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof file);
    return file;
  }
  void fill() const {
    char byte = 0;
    EXPECT_EQ(send(ends_[0], &byte, 1, 0), 1);
    EXPECT_EQ(recv(ends_[0], &byte, 1, 0), 1);
  }

 private:
  void offer(int file) const {
    char byte = 0, control[CMSG_SPACE(sizeof file)] = {};
    iovec part{&byte, 1};
    const msghdr message{nullptr, 0, &part, 1, control, sizeof control, 0};
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof file);
    std::memcpy(CMSG_DATA(header), &file, sizeof file);
    sendmsg(ends_[1], &message, 0);
  }
  [[noreturn]] void run(const std::vector<uint8_t>& data) const {
    Emulated server;
    server.use(1);
    MemoryCalls calls(server);
    const CUmemGenericAllocationHandle made =
        calls.memory_on(1, kPiece, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    CUdeviceptr address = 0;
    int file = -1;
    const CUmemAccessDesc wanted = access_by(1);
    calls.reserve(&address, kPiece, 0, 0, 0);
    calls.map(address, kPiece, 0, made, 0);
    calls.set_access(address, kPiece, &wanted, 1);
    calls.export_handle(&file, made, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    offer(file);
    char byte = 0;
    if (recv(ends_[1], &byte, 1, 0) == 1) {
      server.cu.cuMemcpyHtoD(address, data.data(), kPiece);
      server.cu.cuCtxSynchronize();
      send(ends_[1], &byte, 1, 0);
    }
    _exit(0);
  }

  int ends_[2] = {-1, -1};
  pid_t process_ = -1;
};

TEST(SharedMemory, IsMappedByAnotherProcess) {
  const auto data = random_bytes(kPiece, 7);
  const Exporter exporter(data);  // before this process has a driver
  Emulated server;
  server.use(0);
  MemoryCalls calls(server);
  const int file = exporter.receive();
  CUmemGenericAllocationHandle imported = 0;
  ASSERT_EQ(calls.import_handle(&imported, reinterpret_cast<void*>(intptr_t{file}),
                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
            CUDA_SUCCESS);
  close(file);
  CUmemAllocationProp properties{};
  ASSERT_EQ(calls.get_properties(&properties, imported), CUDA_SUCCESS);
  EXPECT_EQ(properties.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
  EXPECT_EQ(properties.location.id, 1);
  CUdeviceptr address = 0;
  ASSERT_EQ(calls.reserve(&address, kPiece, 0, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(calls.map(address, 2 * kPiece, 0, imported, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(calls.map(address, kPiece, 0, imported, 0), CUDA_SUCCESS);
  const CUmemAccessDesc wanted = access_by(0);
  ASSERT_EQ(calls.set_access(address, kPiece, &wanted, 1), CUDA_SUCCESS);
  exporter.fill();
  std::vector<uint8_t> back(kPiece);
  ASSERT_EQ(server.cu.cuMemcpyDtoH(back.data(), address, kPiece), CUDA_SUCCESS);
  EXPECT_TRUE(back == data);
  EXPECT_EQ(calls.release(imported), CUDA_SUCCESS);
}

}  // namespace
}  // namespace braid::emulator_test
