// The other process (owner.cpp), and an engine that reads and writes its memory.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "braid/transfer.h"
#include "support/eventually.h"
#include "support/stop.h"
#include "transfer/pattern.h"

namespace braid::transfer::test {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;
using braid::test::eventually;

/// Killed at the end.
class Owner {
 public:
  static constexpr size_t kRead = 0, kWrite = 1, kBoth = 2, kNone = 3;  // by what peers may do

  explicit Owner(const std::vector<std::string>& arguments = {}) {
    int to[2], from[2];
    if (pipe(to) != 0 || pipe(from) != 0) return;
    process_ = fork();
    if (process_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      dup2(to[0], STDIN_FILENO);
      dup2(from[1], STDOUT_FILENO);
      for (const int each : {to[0], to[1], from[0], from[1]}) close(each);
      std::vector<char*> all{const_cast<char*>(BRAID_TRANSFER_OWNER)};
      for (const std::string& each : arguments) all.push_back(const_cast<char*>(each.c_str()));
      all.push_back(nullptr);
      execv(BRAID_TRANSFER_OWNER, all.data());
      _exit(127);
    }
    close(to[0]);
    close(from[1]);
    to_ = fdopen(to[1], "w");
    from_ = fdopen(from[0], "r");
    std::istringstream first(line());
    first >> name;
    for (uint64_t address = 0; first >> address;) addresses.push_back(address);
    if (name.empty()) throw std::runtime_error(BRAID_TRANSFER_OWNER " did not start");
  }
  ~Owner() {
    end(SIGKILL);
    if (to_ != nullptr) fclose(to_);
    if (from_ != nullptr) fclose(from_);
  }
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;

  std::string ask(const std::string& what) {
    tell(what);
    return line();
  }
  void tell(const std::string& what) {
    std::fprintf(to_, "%s\n", what.c_str());
    std::fflush(to_);
  }
  /// The first word of "check": whether those bytes are the pattern's.
  std::string check(size_t buffer, uint64_t seed, uint64_t offset, uint64_t size_bytes) {
    return ask("check " + std::to_string(buffer) + " " + std::to_string(seed) + " " +
               std::to_string(offset) + " " + std::to_string(size_bytes));
  }
  void fill(size_t buffer, uint64_t seed) {
    EXPECT_EQ(ask("fill " + std::to_string(buffer) + " " + std::to_string(seed)), "filled");
  }
  void signal(int number) const { kill(process_, number); }
  /// Until SIGCONT.
  void stop() const { braid::test::stop(process_); }
  int end(int number) {
    if (process_ <= 0) return 0;
    if (number != 0) signal(number);
    int status = 0;
    waitpid(process_, &status, 0);
    process_ = -1;
    return status;
  }

  std::string name;
  std::vector<uint64_t> addresses;

 private:
  std::string line() {
    std::string text;
    for (int letter = fgetc(from_); letter != EOF && letter != '\n'; letter = fgetc(from_))
      text.push_back(static_cast<char>(letter));
    return text;
  }

  pid_t process_ = -1;
  FILE* to_ = nullptr;
  FILE* from_ = nullptr;
};

/// An engine with memory, and the segment of an owner.
class Initiator {
 public:
  static constexpr std::chrono::microseconds kLimit = 60s;

  explicit Initiator(const Owner& owner, const Transfer::Options& options = {},
                     size_t size_bytes = 4 << 20)
      : memory(size_bytes), transfer(Transfer::open(options).value()) {
    buffer = transfer.register_memory(memory.data(), memory.size(), {}).value();
    const auto opened = transfer.open_segment(owner.name, kLimit);
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    if (opened.ok()) segment = opened.value();
  }

  Transfer::Request request(Transfer::Operation operation, uint64_t there, size_t size_bytes,
                            size_t offset = 0) {
    return {segment, operation, memory.data() + offset, there, size_bytes};
  }
  Transfer::Request read(uint64_t there, size_t size_bytes, size_t offset = 0) {
    return request(Transfer::Operation::kRead, there, size_bytes, offset);
  }
  Transfer::Request write(uint64_t there, size_t size_bytes, size_t offset = 0) {
    return request(Transfer::Operation::kWrite, there, size_bytes, offset);
  }

  Transfer::Batch submit(const std::vector<Transfer::Request>& requests) {
    return transfer.submit(requests).value();
  }
  std::vector<Transfer::Outcome> end(Transfer::Batch batch) {
    EXPECT_TRUE(transfer.wait(batch, kLimit).value()) << "it does not end";
    std::vector<Transfer::Outcome> outcomes = transfer.outcomes(batch).value();
    EXPECT_TRUE(transfer.forget(batch).ok());
    return outcomes;
  }
  std::vector<Transfer::Cause> run(const std::vector<Transfer::Request>& requests) {
    std::vector<Transfer::Cause> causes;
    for (const Transfer::Outcome& each : end(submit(requests))) causes.push_back(each.cause);
    return causes;
  }

  std::vector<std::byte> memory;  // the engine ends first
  Transfer transfer;
  Transfer::Buffer buffer{};
  Transfer::Segment segment{};
};

}  // namespace braid::transfer::test

namespace braid {
inline void PrintTo(Transfer::Cause cause, std::ostream* out) {
  *out << Transfer::cause_name(cause);
}
}  // namespace braid
