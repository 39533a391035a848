#include "base/text_writer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/gpu_uuid.h"

namespace braid {
namespace {

// What each call of the sink received.
using Parts = std::vector<std::string>;

void keep(void* context, const char* text, size_t size_bytes) {
  static_cast<Parts*>(context)->emplace_back(text, size_bytes);
}

template <typename Write>
Parts written(size_t buffer_bytes, Write write) {
  Parts parts;
  std::vector<char> buffer(buffer_bytes);
  {
    TextWriter out(buffer, keep, &parts);
    write(out);
  }
  return parts;
}

TEST(TextWriter, WritesTextAndNumbers) {
  EXPECT_EQ(written(100, [](TextWriter& out) { out << "a" << 7 << "," << -12 << "," << 1u; }),
            Parts{"a7,-12,1"});
  EXPECT_EQ(written(100, [](TextWriter& out) { out << UINT64_MAX << " " << INT64_MIN; }),
            Parts{"18446744073709551615 -9223372036854775808"});
  EXPECT_EQ(written(100, [](TextWriter& out) { out.hex(0x7f) << ";"; }), Parts{"0x7f;"});
}

TEST(TextWriter, ATextBeyondTheBufferArrivesWhole) {
  const Parts parts = written(4, [](TextWriter& out) {
    out << "abc"
        << "defghijk" << 12;
  });
  EXPECT_EQ(parts, (Parts{"abcd", "efgh", "ijk1", "2"}));
}

TEST(TextWriter, NothingWrittenIsNoWrite) {
  EXPECT_EQ(written(4, [](TextWriter&) {}), Parts{});
}

TEST(TextWriter, ColumnsCountFromTheLastNewline) {
  EXPECT_EQ(written(100,
                    [](TextWriter& out) {
                      (out << "head\nab").tab(4) << "c";
                      (out << "\nabcdef").tab(4) << "c";
                      out.right(5, 3).right("x", 2);
                    }),
            Parts{"head\nab  c\nabcdef c  5 x"});
}

TEST(GpuUuid, IsWrittenAsNvidiaSmiDoes) {
  const char bytes[16] = {'\x89', '\x32', '\xf9', '\x37', '\xd7', '\x2c', '\x41', '\x06',
                          '\xc1', '\x2f', '\x20', '\xbd', '\x9f', '\xae', '\xd9', '\xf6'};
  EXPECT_EQ(format_gpu_uuid(bytes), "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6");
}

TEST(GpuUuid, ItsBeginningNamesAGpu) {
  const std::string uuid = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6";
  EXPECT_TRUE(names_gpu(uuid, uuid));
  EXPECT_TRUE(names_gpu("GPU-8932", uuid));
  EXPECT_FALSE(names_gpu("GPU-8933", uuid));
  EXPECT_FALSE(names_gpu("8932", uuid));
  EXPECT_FALSE(names_gpu("", uuid));
  EXPECT_FALSE(names_gpu(uuid + "0", uuid));
}

}  // namespace
}  // namespace braid
