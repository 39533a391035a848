// KvCache transfer: prefillers compute the KV cache of requests, and push its pages into the memory
// of a decoder, layer by layer. Source: section 4 of RDMA Point-to-Point Communication for LLM
// Systems.
//
//   kv_push decode 10.0.0.7 [REQUESTS]                 prints its address, and decodes
//   kv_push prefill 10.0.0.8 <that address>            on other hosts: any number, at any time
//   kv_push demo                                       all of it on this host, and what goes wrong
//
// The numbers are the addresses of each host's own network interface (docs/fabric.md: two hosts
// share a secret first). With --gpu, which all of them agree on, caches lie in memory of a GPU, and
// a stream of it writes the watched word. A prefiller leaves when it gets SIGINT or SIGTERM. A
// decoder whose requests find no prefiller for 600 seconds (--patience) ends with an error.
//
// Start reading at decoder.h and prefiller.h.
#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "decoder.h"
#include "demo.h"
#include "prefiller.h"

namespace kv_push {

std::string to_hex(const Bytes& bytes) {
  std::string text;
  char digits[3];
  for (const std::byte byte : bytes) {
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(byte));
    text += digits;
  }
  return text;
}

Bytes from_hex(const std::string& text) {
  Bytes bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::strtoul(text.substr(i, 2).c_str(), nullptr, 16)));
  return bytes;
}

namespace {

std::atomic<bool> is_leaving{false};
constexpr size_t kNumberMax = 1'000'000'000;  // of seconds and of requests

/// Nothing else than digits: 1 or more.
size_t number(const std::string& text) {
  char* end = nullptr;
  const bool is_digit = !text.empty() && text[0] >= '0' && text[0] <= '9';
  const size_t value = is_digit ? std::strtoul(text.c_str(), &end, 10) : 0;
  if (is_digit && *end == '\0' && value >= 1 && value <= kNumberMax) return value;
  std::fprintf(stderr, "kv_push: '%s' is no number from 1 to %zu\n", text.c_str(), kNumberMax);
  std::exit(2);
}

struct CommandLine {
  std::vector<std::string> words;
  std::string name = "prefiller";
  std::chrono::seconds patience = Decoder::kPatience;
  bool has_gpu = false;
  bool corrupts = false;  // for the demo's test: see DemoOptions
};

CommandLine read(int count, char** words) {
  CommandLine line;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    if (word == "--gpu")
      line.has_gpu = true;
    else if (word == "--corrupt")
      line.corrupts = true;
    else if (word == "--name" && i + 1 < count)
      line.name = words[++i];
    else if (word == "--patience" && i + 1 < count)
      line.patience = std::chrono::seconds(number(words[++i]));
    else
      line.words.push_back(word);
  }
  return line;
}

Fabric open_fabric(const std::string& address, bool has_gpu) {
  Fabric::Options options;
  options.provider = "tcp;ofi_rxm";
  options.addresses = {address};
  options.gpu_memory = has_gpu;
  return must(Fabric::open(options));
}

void run_decoder(Fabric& fabric, Device& device, std::chrono::seconds patience, size_t count) {
  std::printf("address %s\n", to_hex(must(fabric.address())).c_str());
  std::fflush(stdout);
  Decoder decoder(fabric, device, patience);
  std::vector<Request> requests(count);
  for (size_t i = 0; i < count; ++i) {
    requests[i].page_count = 1 + static_cast<uint32_t>(i * 7 % kRequestPagesMax);
    requests[i].is_cancelled_midway = i % 5 == 4;
  }
  const Decoder::Tally tally = decoder.decode(requests);
  decoder.finish();
  std::printf("%zu requests: %lu decoded, every byte is right\n", count,
              static_cast<unsigned long>(tally.decoded));
}

void run_prefiller(Fabric& fabric, Device& device, const CommandLine& line) {
  struct sigaction action {};
  action.sa_handler = [](int) { is_leaving = true; };
  (void)sigaction(SIGINT, &action, nullptr);
  (void)sigaction(SIGTERM, &action, nullptr);
  Prefiller prefiller(fabric, device, {line.name, line.corrupts});
  prefiller.serve(from_hex(line.words[2]), is_leaving);
}

int run(const CommandLine& line) {
  const std::string role = line.words.empty() ? "" : line.words[0];
  const size_t count = line.words.size();
  const bool is_whole = (role == "decode" && (count == 2 || count == 3)) ||
                        (role == "prefill" && count == 3) || (role == "demo" && count == 1);
  if (!is_whole) {
    std::fprintf(stderr,
                 "usage: kv_push decode ADDRESS [REQUESTS] [--patience SECONDS] [--gpu]\n"
                 "       kv_push prefill ADDRESS DECODER [--name NAME] [--gpu]\n"
                 "       kv_push demo [--gpu]\n");
    return 2;
  }
  const std::unique_ptr<Device> device = line.has_gpu ? must(open_gpu()) : open_host();
  Fabric fabric = open_fabric(role == "demo" ? "127.0.0.1" : line.words[1], line.has_gpu);
  if (role == "decode")
    run_decoder(fabric, *device, line.patience, count == 3 ? number(line.words[2]) : 20);
  else if (role == "prefill")
    run_prefiller(fabric, *device, line);
  else
    run_demo(fabric, *device, {line.has_gpu, line.corrupts});
  return 0;
}

}  // namespace
}  // namespace kv_push

int main(int count, char** words) { return kv_push::run(kv_push::read(count, words)); }
