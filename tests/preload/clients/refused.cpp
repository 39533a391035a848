// Copies of rows and layers with numbers that no copy can have: refused NAME. The answers are
// printed, and so compared with those that the driver gives natively; a copy that is refused leaves
// every byte as it was.
#include <cstring>
#include <functional>
#include <map>
#include <string>

#include "client.h"

namespace {

using namespace client;

constexpr size_t kRowBytes = size_t{2} << 20;
constexpr size_t kRows = 4;
constexpr size_t kSizeBytes = kRows * kRowBytes;
// Both ends have as much memory before and behind them, so that nothing but the numbers is wrong.
constexpr size_t kAllBytes = 3 * kSizeBytes;

uint64_t address_of(const uint8_t* memory) { return reinterpret_cast<uint64_t>(memory); }

class Refusals {
 public:
  Refusals() {
    use_gpu(0);
    host_ = pin(kAllBytes);
    device_ = allocate(kAllBytes);
    held_.resize(kAllBytes);
    call("cuStreamCreate", &stream_, static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
  }

  const uint8_t* source() const { return host_ + kSizeBytes; }
  CUdeviceptr target() const { return device_ + kSizeBytes; }
  CUstream stream() const { return stream_; }

  void ask(const char* why, const std::function<CUresult()>& copy) {
    std::memcpy(host_, held_.data(), kAllBytes);
    for (size_t at = kSizeBytes; at < 2 * kSizeBytes; ++at) host_[at] ^= 0xff;
    const CUresult answer = copy();
    call("cuStreamSynchronize", stream_);
    std::printf("%s: %d\n", why, static_cast<int>(answer));
    if (answer == CUDA_SUCCESS)
      std::memcpy(held_.data() + kSizeBytes, source(), kSizeBytes);  // all of it has been copied
    std::vector<uint8_t> got(kAllBytes);
    read_in_pieces(got.data(), device_, kAllBytes);
    require(got == held_, why);
  }

 private:
  uint8_t* host_ = nullptr;
  CUdeviceptr device_ = 0;
  CUstream stream_ = nullptr;
  std::vector<uint8_t> held_;
};

// The members that both structs have.
template <typename Params>
Params good(const Refusals& with) {
  Params params{};
  params.srcMemoryType = CU_MEMORYTYPE_HOST;
  params.srcHost = with.source();
  params.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  params.dstDevice = with.target();
  params.srcPitch = params.dstPitch = kRowBytes;
  params.WidthInBytes = kRowBytes;
  params.Height = kRows;
  if constexpr (requires { params.Depth; }) params.Depth = 1;
  return params;
}

// A box of one row, of which `change` makes something else.
template <typename Params, typename Ask>
void common_cases(Refusals& with, const Ask& ask) {
  const auto changed = [&](const char* why, auto change) {
    auto params = good<Params>(with);
    change(params);
    ask(why, params);
  };
  changed("as it should be", [](auto&) {});
  changed("a row that begins before its memory", [](auto& box) { box.dstXInBytes = SIZE_MAX - 3; });
  changed("a row that is read from there", [](auto& box) { box.srcXInBytes = SIZE_MAX - 3; });
  changed("a row that begins behind its pitch", [](auto& box) { box.dstXInBytes = kRowBytes; });
  changed("rows before the memory", [](auto& box) { box.dstY = SIZE_MAX / kRowBytes; });
  changed("a row so far behind that its address wraps",
          [](auto& box) { box.dstY = SIZE_MAX / kRowBytes + 1; });
  changed("so many rows that their size wraps",
          [](auto& box) { box.Height = SIZE_MAX / kRowBytes + 1 + kRows; });
  changed("a pitch that no GPU has", [](auto& box) {
    box.dstPitch = size_t{1} << 31;
    box.WidthInBytes = kSizeBytes;
    box.srcPitch = kSizeBytes;
    box.Height = 1;
  });
  changed("the largest pitch", [](auto& box) {
    box.dstPitch = (size_t{1} << 31) - 1;
    box.WidthInBytes = kSizeBytes;
    box.srcPitch = kSizeBytes;
    box.Height = 1;
  });
}

int rows(Refusals& with) {
  common_cases<CUDA_MEMCPY2D>(with, [&](const char* why, const CUDA_MEMCPY2D& params) {
    auto* copy = get<CUresult(const CUDA_MEMCPY2D*, CUstream)>("cuMemcpy2DAsync_v2");
    with.ask(why, [&] { return copy(&params, with.stream()); });
  });
  return 0;
}

int layers(Refusals& with) {
  const auto ask = [&](const char* why, const CUDA_MEMCPY3D& params) {
    auto* copy = get<CUresult(const CUDA_MEMCPY3D*, CUstream)>("cuMemcpy3DAsync_v2");
    with.ask(why, [&] { return copy(&params, with.stream()); });
  };
  common_cases<CUDA_MEMCPY3D>(with, ask);
  const auto changed = [&](const char* why, auto change) {
    auto params = good<CUDA_MEMCPY3D>(with);
    params.srcHeight = params.dstHeight = 1;
    params.Height = 1;
    params.Depth = kRows;
    change(params);
    ask(why, params);
  };
  changed("layers as they should be", [](auto&) {});
  changed("a reserved member", [](auto& box) { box.reserved0 = &box; });
  changed("the other reserved member", [](auto& box) { box.reserved1 = &box; });
  changed("a layer that cannot be found", [](auto& box) {
    box.dstHeight = 0;
    box.Depth = 1;
    box.dstZ = 1;
  });
  changed("layers before the memory", [](auto& box) { box.dstZ = SIZE_MAX / kRowBytes; });
  changed("so many layers that their size wraps",
          [](auto& box) { box.Depth = SIZE_MAX / kRowBytes + 1 + kRows; });
  changed("layers so high that their pitch wraps",
          [](auto& box) { box.dstHeight = SIZE_MAX / kRowBytes + 2; });
  return 0;
}

int boxes(Refusals& with) {
  using Batch = CUresult(size_t, CUDA_MEMCPY3D_BATCH_OP*, unsigned long long, CUstream);
  const auto changed = [&](const char* why, auto change) {
    CUDA_MEMCPY3D_BATCH_OP box{};
    box.src.type = box.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    box.src.op.ptr.ptr = address_of(with.source());
    box.dst.op.ptr.ptr = with.target();
    box.extent = {kRowBytes, kRows, 1};
    box.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    change(box);
    auto* copy = get<Batch>("cuMemcpy3DBatchAsync_v2");
    with.ask(why, [&] { return copy(1, &box, 0, with.stream()); });
  };
  changed("a box as it should be", [](auto&) {});
  changed("rows that go backwards",
          [](auto& box) { box.dst.op.ptr.rowLength = SIZE_MAX - kRowBytes + 1; });
  changed("layers so high that their pitch wraps", [](auto& box) {
    box.extent = {kRowBytes, 1, kRows};
    box.dst.op.ptr.rowLength = kRowBytes;
    box.dst.op.ptr.layerHeight = SIZE_MAX / kRowBytes + 2;
  });
  changed("so many rows that their size wraps",
          [](auto& box) { box.extent.height = SIZE_MAX / kRowBytes + 1 + kRows; });
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, int (*)(Refusals&)> shapes = {
      {"rows", rows}, {"layers", layers}, {"boxes", boxes}};
  const auto shape = shapes.find(argc > 1 ? argv[1] : "");
  require(use_lookup("dlsym"), "no driver");
  require(shape != shapes.end(), "no such shape");
  Refusals with;
  return shape->second(with);
}
