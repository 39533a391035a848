// The other processes of churn_test.cpp: engines that come, write a little, and go.
//
//   fabric_visitor PROVIDER ADDRESS COUNT BYTES leaves|ends host|gpu
//
// COUNT engines, one after the other. Each connects to the address (hexadecimal digits), takes an
// order, writes, and closes when it is told to; with `ends`, the last one's process ends instead.
// The exit code is 1 if something fails, or if this process then holds more than after a quarter of
// them: more descriptors or threads, or more than BYTES for each engine.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "braid/fabric.h"
#include "fabric/churn.h"
#include "fabric/order.h"
#include "support/eventually.h"

namespace {

using braid::Fabric;
using braid::test::Holdings;
using std::chrono::seconds;

constexpr seconds kLimit{120};

[[noreturn]] void fail(const std::string& why) {
  std::fprintf(stderr, "visitor: %s\n", why.c_str());
  std::_Exit(1);
}

template <typename T>
T must(braid::Result<T> result, const char* what) {
  if (!result.ok()) fail(std::string(what) + ": " + result.status().message());
  return std::move(result).value();
}

void write(Fabric& fabric, const Fabric::ByteList& order, bool is_gpu) {
  braid::test::VisitOrder told;
  std::memcpy(&told, order.data(), sizeof told);
  const auto target =
      must(fabric.open_target({order.begin() + sizeof told, order.end()}), "the target");
  std::vector<std::byte> source(braid::test::kVisitBytes);
  for (size_t i = 0; i < source.size(); ++i) source[i] = braid::test::byte_of_visit(told.number, i);
  braid::test::VisitMemory memory(is_gpu);
  memory.put(source);
  const auto region = must(fabric.add_region(memory.data(), source.size()), "the region");
  const auto ticket = must(
      fabric.write(region, target, {0, 0, source.size()}, told.immediate, kLimit), "the write");
  if (must(fabric.wait(ticket, kLimit), "the ticket") != Fabric::TicketState::kDone)
    fail("the write has failed");
  if (!fabric.remove_region(region).ok()) fail("its region stays");
}

void visit(const char* provider, const Fabric::ByteList& host, bool is_gpu, bool ends) {
  Fabric fabric = must(Fabric::open(braid::test::visit_options(provider, is_gpu)), "open");
  must(fabric.connect(host, kLimit), "connect");
  const auto order = must(fabric.receive(kLimit), "the order");
  if (!order) fail("no order has come");
  write(fabric, order->bytes, is_gpu);
  if (!must(fabric.receive(kLimit), "the end")) fail("nobody says that it is over");
  if (ends) std::_Exit(0);
}

}  // namespace

int main(int count, char** words) {
  if (count != 7) return 2;
  const char* provider = words[1];
  const Fabric::ByteList host = braid::fabric::test::from_hex(words[2]);
  const int visits = std::atoi(words[3]), warm = visits / 4;
  const bool ends = words[5] == std::string("ends"), is_gpu = words[6] == std::string("gpu");
  for (int i = 0; i < warm; ++i) visit(provider, host, is_gpu, false);
  const Holdings before = Holdings::now();
  for (int i = warm; i + 1 < visits; ++i) visit(provider, host, is_gpu, false);
  std::string grown;
  (void)braid::test::eventually([&] {  // a thread that was joined may not be off the list yet
    grown = Holdings::now().grown_since(before, visits - warm - 1, std::atol(words[4]));
    return grown.empty();
  });
  visit(provider, host, is_gpu, ends && grown.empty());
  if (!grown.empty()) fail("this process holds " + grown);
  return 0;
}
