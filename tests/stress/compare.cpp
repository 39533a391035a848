// stress_compare --programs N --seed S --mover kernel|copy-engine|auto --batch N
// --opening wait|background --server PROFILE|none --seconds S --limit S: runs programs natively and
// under braid (auto: batches by kernels, contiguous copies by copy engines), on an emulated server
// or (none) on this machine's GPUs, and compares what each says of itself, line by line. Programs
// of a batch share a process; in the background, relays open slowly beside its first ones. On a
// difference it names the seed and the commands that replay that program.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/child.h"

namespace {

using braid::test::ChildResult;
using braid::test::Environment;

struct Request {
  uint64_t programs = 1000;
  uint64_t seed = 1;
  uint64_t batch = 500;
  std::string mover = "kernel";
  std::string opening = "wait";
  std::string server = "h20x8";
  uint64_t seconds = UINT64_MAX;  ///< after which no more programs are begun
  std::string limit_s = "180";    ///< of a batch: programs that hang must not hang the test
};

// Braid goes in front of the programs alone: a sanitizer that braid is built with would be checking
// `timeout` too.
std::vector<std::string> programs_of(uint64_t seed, uint64_t count, const Request& request,
                                     const std::string& preload) {
  return {"timeout",
          request.limit_s,
          "env",
          "LD_PRELOAD=" + preload,
          BRAID_STRESS_PROGRAMS,
          std::to_string(seed),
          std::to_string(count)};
}

Environment natively(const Request& request) {
  if (request.server == "none") return {};
  return {{"LD_LIBRARY_PATH", BRAID_EMULATOR_FOLDER},
          {"BRAID_SERVER", BRAID_PROFILES "/" + request.server + ".json"},
          {"CUDA_VISIBLE_DEVICES", "0,1,2,3"}};
}

// Every size goes through braid, in many slices; pageable copies are staged.
Environment with_braid(const Request& request) {
  Environment environment = natively(request);
  environment.insert({{"BRAID_MOVER", request.mover},
                      {"BRAID_OPENING", request.opening},
                      {"BRAID_THRESHOLD", "1"},
                      {"BRAID_EXPERIMENT", "slice=8K"},
                      {"BRAID_PAGEABLE", "2"},
                      {"BRAID_STATS", "json"}});
  if (request.opening == "background" && request.server != "none")
    environment["BRAID_FAULTS"] = R"({"contexts_take_ms": 3})";
  return environment;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// As a shell's words.
std::string text_of(const Environment& environment) {
  std::string text;
  for (const auto& [name, value] : environment) text += name + "=" + value + " ";
  return text;
}

void say_replay(uint64_t seed, const Request& request) {
  const std::string program =
      std::string(BRAID_STRESS_PROGRAMS) + " " + std::to_string(seed) + " 1 --trace";
  Environment braided = with_braid(request);
  braided.erase("BRAID_STATS");
  std::printf("replay: %sLD_PRELOAD=%s %s\n", text_of(braided).c_str(), BRAID_PRELOAD_LIBRARY,
              program.c_str());
  std::printf("native: %s%s\n", text_of(natively(request)).c_str(), program.c_str());
}

// The program that a run did not finish is the one after its last line.
bool is_whole(const ChildResult& child, const char* what, uint64_t seed, const Request& request) {
  if (child.exit_code == 0) return true;
  const uint64_t stopped = seed + lines_of(child.output).size();
  std::printf("program %llu %s: %s (exit code %d, signal %d)\n%s\n",
              static_cast<unsigned long long>(stopped), child.exit_code == 124 ? "hangs" : "fails",
              what, child.exit_code, child.signal, child.other_errors().c_str());
  say_replay(stopped, request);
  return false;
}

struct Totals {
  uint64_t accelerated = 0;
  uint64_t not_ready = 0;
  std::map<std::string, uint64_t> by_mover;
  uint64_t refused = 0;  // programs in which some call was answered with an error
  uint64_t lost = 0;     // programs that do not end natively, or not always alike
};

// So many of a hundred programs may be lost to a real driver, which now and then hangs or faults:
// in a child of a process with several threads, or when a context is reset beside other threads.
constexpr uint64_t kMostLostPercent = 2;

// On a real driver a program that races with itself ends in several ways, natively too.
bool ends_in_several_ways(uint64_t seed, const Request& request) {
  constexpr int kRuns = 8;
  std::set<std::string> ends;
  for (int run = 0; run < kRuns; ++run)
    ends.insert(
        braid::test::run_child(programs_of(seed, 1, request, ""), natively(request)).output);
  return ends.size() > 1;
}

bool compare(uint64_t seed, uint64_t count, const Request& request, Totals& totals) {
  if (count == 0) return true;
  const ChildResult native =
      braid::test::run_child(programs_of(seed, count, request, ""), natively(request));
  if (!is_whole(native, "natively", seed, request)) {
    if (request.server != "none") return false;
    ++totals.lost;
    const uint64_t whole = lines_of(native.output).size();
    return compare(seed, whole, request, totals) &&
           compare(seed + whole + 1, count - whole - 1, request, totals);
  }
  const ChildResult braided = braid::test::run_child(
      programs_of(seed, count, request, BRAID_PRELOAD_LIBRARY), with_braid(request));
  if (!is_whole(braided, "under braid", seed, request)) return false;
  if (!braided.other_errors().empty())
    std::printf("braid said: %s", braided.other_errors().c_str());
  const auto expected = lines_of(native.output), found = lines_of(braided.output);
  for (uint64_t i = 0; i < count; ++i) {
    const bool in_order = found[i].ends_with("order=ok") && expected[i].ends_with("order=ok");
    if (found[i].find("errors=none") == std::string::npos) ++totals.refused;
    if (found[i] == expected[i] && in_order) continue;
    if (in_order && request.server == "none" && ends_in_several_ways(seed + i, request)) {
      ++totals.lost;
      continue;
    }
    std::printf("native: %s\nbraid:  %s\n", expected[i].c_str(), found[i].c_str());
    say_replay(seed + i, request);
    return false;
  }
  for (const auto& statistics : braided.statistics()) {
    for (const auto& [entry, verdicts] : statistics.at("entry_points").items()) {
      totals.accelerated += braid::test::counted(statistics, entry, "accelerated").calls;
      totals.not_ready += braid::test::counted(statistics, entry, "not_ready").calls;
    }
    for (const auto& [mover, carried] : statistics.at("movers").items())
      totals.by_mover[mover] += carried.at("calls").get<uint64_t>();
  }
  return true;
}

bool parse(int count, char** words, Request& request) {
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string name = words[i];
    if (name == "--programs")
      request.programs = std::strtoull(words[i + 1], nullptr, 10);
    else if (name == "--seed")
      request.seed = std::strtoull(words[i + 1], nullptr, 10);
    else if (name == "--batch")
      request.batch = std::max<uint64_t>(1, std::strtoull(words[i + 1], nullptr, 10));
    else if (name == "--mover")
      request.mover = words[i + 1];
    else if (name == "--opening")
      request.opening = words[i + 1];
    else if (name == "--server")
      request.server = words[i + 1];
    else if (name == "--seconds")
      request.seconds = std::strtoull(words[i + 1], nullptr, 10);
    else if (name == "--limit")
      request.limit_s = words[i + 1];
    else
      return false;
  }
  return count % 2 == 1;
}

}  // namespace

int main(int count, char** words) {
  Request request;
  if (!parse(count, words, request)) {
    std::fprintf(
        stderr,
        "usage: stress_compare [--programs N] [--seed S] [--mover kernel|copy-engine|auto] "
        "[--batch N] [--opening wait|background] [--server PROFILE|none] [--seconds S] "
        "[--limit S]\n");
    return 2;
  }
  const auto begin = std::chrono::steady_clock::now();
  const auto elapsed_s = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  Totals totals;
  uint64_t done = 0;
  while (done < request.programs && elapsed_s() < static_cast<double>(request.seconds)) {
    const uint64_t some = std::min(request.batch, request.programs - done);
    if (!compare(request.seed + done, some, request, totals)) return 1;
    done += some;
  }
  std::printf(
      "%llu programs from seed %llu on, %.0f a second: the same natively and with the %s "
      "mover; %llu copies accelerated, %llu before relays were open, errors in %llu programs; %llu "
      "did not end natively, or not always alike\n",
      static_cast<unsigned long long>(done), static_cast<unsigned long long>(request.seed),
      static_cast<double>(done) / elapsed_s(), request.mover.c_str(),
      static_cast<unsigned long long>(totals.accelerated),
      static_cast<unsigned long long>(totals.not_ready),
      static_cast<unsigned long long>(totals.refused),
      static_cast<unsigned long long>(totals.lost));
  if (totals.lost > 1 + done * kMostLostPercent / 100) return 1;
  for (const auto& [mover, calls] : totals.by_mover)
    std::printf("%s: %llu\n", mover.c_str(), static_cast<unsigned long long>(calls));
  // A test in which braid does nothing would pass, or in which one mover has no part. Few batches
  // are of one direction, on one GPU and of memory that is carried.
  if (request.mover == "auto")
    for (const char* mover : {"kernel", "copy_engine"})
      if (totals.by_mover[mover] < done / 20) return 1;
  if (request.opening == "background")  // how much comes before depends on the machine
    return totals.not_ready > 0 && totals.accelerated >= done / 10 ? 0 : 1;
  return totals.accelerated >= done / 2 ? 0 : 1;
}
