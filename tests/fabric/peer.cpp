// The other process of process_test.cpp: it connects, writes what it is told to, and goes on until
// it is told to stop, or is killed.
//
//   fabric_peer PROVIDER ADDRESS [POINT SIGNAL POINTS]     the owner's address as hexadecimal
//   digits; the provider as open_process_rail names it
//
// With a POINT it sends itself the signal (SIGKILL, SIGSTOP) when it has come so far. With `steps`
// each step of its engine in which something happened is a point, and so is each call of its own;
// with `ends` these count from the step on in which it has confirmed that a grant was revoked; with
// `locks` each spin lock in shared memory that libfabric takes, which it holds then; with
// `door_locks` all of these but that of the endpoint that the owner's messages come to.
//
// An order is a message: how often, how many bytes, the immediate, the descriptor. Every write goes
// to the same bytes, whose values say which it was. An order to write never is one to own so many
// bytes: the answer is an order to write there. If that is none, it is to disconnect, and to live
// on.
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <random>
#include <string>

#include "fabric/engine.h"
#include "fabric/host/processes.h"
#include "fabric/ofi/imports.h"
#include "fabric/ofi/library.h"
#include "fabric/order_message.h"
#include "fabric/process_rail.h"

namespace {

using namespace braid::fabric;

uint64_t now_ns() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr int kGpu = 1;  // the test's is another one

std::string provider;  // of its rail

long points_left = 0;  // 0: none is wanted
int signal_there = 0;
bool counts_locks = false;
bool counts_yet = true;                // with `ends` once this is gone:
std::optional<uint64_t> written_last;  // a target

void reach_point() {
  if (points_left > 0 && --points_left == 0) raise(signal_there);
}

void point() {
  if (!counts_locks && counts_yet) reach_point();
}

int (*spin_lock)(pthread_spinlock_t*) = nullptr;  // as libfabric would call it

/// Where the owner's messages come to; empty: its lock counts too.
std::string file_left_out;

/// Whether it is one of those that count.
bool counts(const pthread_spinlock_t* lock) {
  const auto place = reinterpret_cast<uintptr_t>(lock);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    uintptr_t first = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx", &first, &end) != 2) continue;
    if (place < first || place >= end) continue;
    const size_t file = line.find("/dev/shm/");
    return file != std::string::npos && line.substr(file + 9) != file_left_out;
  }
  return false;
}

int spin_lock_at_point(pthread_spinlock_t* lock) {
  const int answer = spin_lock(lock);
  if (points_left > 0 && counts(lock)) reach_point();
  return answer;
}

void count_locks() {
  counts_locks = true;
  const auto before = ofi::replace_import(ofi::library().value()->handle, "pthread_spin_lock",
                                          reinterpret_cast<void*>(spin_lock_at_point));
  spin_lock = reinterpret_cast<int (*)(pthread_spinlock_t*)>(before.value());
}

void step(Engine& engine) {
  const bool is_busy = engine.step(now_ns());
  counts_yet = counts_yet || (written_last && !engine.has_target(*written_last));
  if (is_busy) point();
}

void own(Engine& engine, uint64_t writer, uint64_t size_bytes) {
  static std::vector<test::ProcessMemory> all;
  test::ProcessMemory& memory = all.emplace_back(provider, kGpu, size_bytes);
  const uint64_t region = engine.add_region(memory.bytes()).value();
  const Granted granted = engine.grant(region, writer, 0, size_bytes).value();
  const test::Order order{1, engine.counters().acquire().value(), size_bytes};
  point();
  (void)engine.send(writer, test::message_of(order, granted.descriptor));
}

int serve(Engine& engine) {
  for (;;) {
    step(engine);
    const auto order = engine.receive();
    if (!order) continue;
    if (order->payload.size() < 16) return 0;  // to stop
    test::Order told;
    std::memcpy(&told, order->payload.data(), sizeof told);
    if (told.writes == 0) {
      if (told.size_bytes == 0) {
        (void)engine.disconnect(order->peer);
        point();
      } else {
        own(engine, order->peer, told.size_bytes);
      }
      continue;
    }
    const auto target =
        engine.open_target(decode_descriptor(Bytes(order->payload).subspan(sizeof told)).value());
    point();
    if (!target.ok()) return 3;
    written_last = target.value();
    test::ProcessMemory source(provider, kGpu, told.size_bytes);
    const uint64_t region = engine.add_region(source.bytes()).value();
    for (uint32_t i = 0; i < told.writes; ++i) {
      source.fill(static_cast<std::byte>(i + 1));
      const auto ticket = engine.write(region, target.value(), {0, 0, told.size_bytes},
                                       told.immediate, now_ns() + 20 * kSecondNs);
      if (!ticket.ok()) break;  // revoked
      point();
      while (engine.state(ticket.value()).value() == TicketState::kPending) step(engine);
      engine.forget(ticket.value());
    }
  }
}

}  // namespace

int main(int count, char** words) {
  if (count != 3 && count != 6) return 2;
  if (count == 6) {
    points_left = std::atol(words[3]), signal_there = std::atoi(words[4]);
    counts_yet = std::strcmp(words[5], "ends") != 0;
    if (std::strstr(words[5], "locks") != nullptr) count_locks();
  }
  provider = words[1];
  EngineOptions options;
  options.engine = std::random_device()() | uint64_t{std::random_device()()} << 32;
  options.processes = host_processes();
  std::vector<std::unique_ptr<Domain>> rails;
  rails.push_back(test::open_process_rail(provider).value());
  auto engine = Engine::open(std::move(rails), options).value();
  const Address owner = decode_address(test::from_hex(words[2])).value();
  if (count == 6 && std::strcmp(words[5], "door_locks") == 0) {
    // "fi_shm://NAME" and a zero.
    const std::vector<std::byte>& name = owner.rails[0].name;
    file_left_out = std::string(reinterpret_cast<const char*>(name.data()), name.size() - 1);
    file_left_out = file_left_out.substr(file_left_out.find("://") + 3);
  }
  const uint64_t peer = engine->connect(owner, now_ns() + 20 * kSecondNs).value();
  point();
  while (engine->peer_state(peer).value() == PeerState::kConnecting) step(*engine);
  if (engine->peer_state(peer).value() != PeerState::kConnected) return 4;
  return serve(*engine);
}
