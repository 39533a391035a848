#include "server.h"

#include <algorithm>
#include <chrono>
#include <string>

namespace rotate {

using braid::Rotation;

namespace {

uint32_t blocks_of(uint32_t tokens) { return (tokens + kBlockTokens - 1) / kBlockTokens; }

void must(const braid::Status& status) {
  if (!status.ok()) die(status.message());
}
void must(const Rotation::Applied& applied) {
  if (!applied.ok()) die(applied.words());
}

}  // namespace

Server::Server(Gpu& gpu, const Load& load, Preemption preemption, braid::Engine* engine)
    : gpu_(gpu), load_(load), preemption_(preemption) {
  const uint32_t tokens = load.prompt_tokens + load.output_tokens;
  if (tokens > kTokensMost)
    die("a request has more than " + std::to_string(kTokensMost) + " tokens");
  if (blocks_of(tokens) + 1 > load.gpu_slots) die("a request does not fit on the GPU");
  auto segments = Rotation::segments({load.layers, 1, kHead, sizeof(float), kBlockTokens},
                                     Rotation::GpuOrder::kBlockFirst, load.gpu_slots);
  must(segments.status());
  block_bytes_ = segments.value()[0].size_bytes;
  cache_ = gpu.allocate(load.gpu_slots * block_bytes_);
  const Rotation::Options options{segments.value(),
                                  load.gpu_slots,
                                  load.requests * blocks_of(tokens),
                                  {{gpu.context(), cache_, gpu.stream()}}};
  auto opened = engine != nullptr ? Rotation::open(options, *engine) : Rotation::open(options);
  must(opened.status());
  rotation_.push_back(std::move(opened).value());
  steps_ = static_cast<RequestStep*>(gpu.allocate_host(load.requests * sizeof(RequestStep)));
  for (uint32_t number = 0; number < load.requests; ++number)
    requests_.push_back(new_request(number));
  for (Request& request : requests_) waiting_.push_back(&request);
}

Server::~Server() {
  rotation_.clear();
  gpu_.free(cache_);
}

Server::Request Server::new_request(uint32_t number) {
  Request request;
  request.seed = number;
  request.tokens = static_cast<uint32_t*>(gpu_.allocate_host((kTokensMost + 1) * sizeof(uint32_t)));
  request.slots =
      static_cast<uint32_t*>(gpu_.allocate_host(blocks_of(kTokensMost) * sizeof(uint32_t)));
  for (uint32_t i = 0; i < load_.prompt_tokens; ++i)
    request.tokens[i] = (number * 7919 + i * 104729) % kVocabulary;
  request.token_count = load_.prompt_tokens;
  return request;
}

Served Server::serve() {
  const auto begin = std::chrono::steady_clock::now();
  const auto is_done = [this](const Request& request) { return request.is_done(load_); };
  while (!std::all_of(requests_.begin(), requests_.end(), is_done)) {
    must(rotation().poll().status());
    schedule();
    step();
    for (Request& request : requests_)
      if (request.runs && request.is_done(load_)) finish(request);
  }
  served_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  for (const Request& request : requests_)
    served_.tokens.emplace_back(request.tokens, request.tokens + request.token_count);
  served_.several_links_bytes = rotation().statistics().value().accelerated_bytes;
  return served_;
}

// Those that have had their turn make room for those that wait, which come in their order.
void Server::schedule() {
  const auto runs = [](const Request& request) { return request.runs; };
  for (Request& request : requests_)
    if (!waiting_.empty() && request.runs && request.ran_steps >= load_.turn_steps)
      preempt(request);
  std::vector<Block> load;
  std::vector<Request*> resumed;
  uint32_t left = slots_left();
  const auto running =
      static_cast<uint32_t>(std::count_if(requests_.begin(), requests_.end(), runs));
  // Each that runs may need another block before its turn ends.
  while (!waiting_.empty() &&
         left >= waiting_.front()->blocks_needed() + 1 + running + resumed.size()) {
    Request& request = *waiting_.front();
    waiting_.pop_front();
    left -= request.blocks_needed() + 1;
    load.insert(load.end(), request.blocks.begin(), request.blocks.end());
    resumed.push_back(&request);
  }
  move(load);
  for (Request* request : resumed) resume(*request);
}

uint32_t Server::slots_left() const {
  const auto statistics = rotation_.front().statistics();
  uint32_t left = statistics.value().gpu_slots_free + statistics.value().gpu_slots_fenced;
  for (const Block block : evict_)
    if (rotation_.front().find(block).value().state == Rotation::BlockState::kSynced) ++left;
  return left;
}

void Server::preempt(Request& request) {
  while (request.blocks.size() > blocks_of(request.cached)) {  // not written yet
    must(rotation().end_use({&request.blocks.back(), 1}));
    must(rotation().release({&request.blocks.back(), 1}));
    request.blocks.pop_back();
  }
  must(rotation().end_use(request.blocks));
  if (preemption_ == Preemption::kRecomputes) {
    must(rotation().release(request.blocks));
    request.blocks.clear();
    request.cached = 0;
  } else {
    if (request.cached % kBlockTokens != 0) must(rotation().seal({&request.blocks.back(), 1}));
    evict_.insert(evict_.end(), request.blocks.begin(), request.blocks.end());
  }
  request.runs = false;
  waiting_.push_back(&request);
}

void Server::move(const std::vector<Block>& load) {
  Rotation::Plan plan;
  plan.evict = evict_;
  plan.load = load;
  plan.writes_through = preemption_ == Preemption::kRotates;
  const Rotation::Submitted submitted = rotation().submit(plan);
  must(submitted.failure);
  if (!submitted.refused.empty()) die(braid_kv_refusal_words(submitted.refused[0].refusal));
  served_.down_bytes += submitted.down_bytes;
  served_.up_bytes += submitted.up_bytes;
  evict_.clear();
}

// The step that comes next is ordered behind the loads.
void Server::resume(Request& request) {
  must(rotation().begin_use(request.blocks));
  if (request.cached % kBlockTokens != 0) reopen(request.blocks.back());
  request.runs = true;
  request.ran_steps = 0;
}

// Of a request that comes back at once, the copy down of its last block may still be under way.
void Server::reopen(Block block) {
  auto reopened = rotation().reopen({&block, 1});
  if (reopened.refusal == BRAID_KV_COPYING) {
    rotation().wait();
    must(rotation().poll().status());
    reopened = rotation().reopen({&block, 1});
  }
  must(reopened);
}

bool Server::grow(Request& request) {
  while (request.blocks.size() < request.blocks_needed()) {
    const auto block = rotation().create();
    if (!block.ok() && block.status().cause() == BRAID_KV_NO_GPU_SLOT) return false;
    if (!block.ok()) die(block.status().message());
    request.blocks.push_back(block.value());
  }
  return true;
}

void Server::step() {
  rotation().begin_step();
  std::vector<Request*> running;
  for (Request& request : requests_) {
    if (!request.runs) continue;
    if (!grow(request)) {
      preempt(request);
      continue;
    }
    must(rotation().gpu_slots(request.blocks, request.slots));
    steps_[running.size()] = {reinterpret_cast<uint64_t>(request.tokens),
                              reinterpret_cast<uint64_t>(request.slots), request.cached,
                              request.token_count, request.seed};
    running.push_back(&request);
  }
  gpu_.launch({reinterpret_cast<uint64_t>(steps_), cache_, block_bytes_, load_.layers,
               static_cast<uint32_t>(running.size())});
  for (Request* request : running) {
    const size_t first = request->cached / kBlockTokens;
    const size_t full = request->token_count / kBlockTokens;
    if (full > first) must(rotation().seal({request->blocks.data() + first, full - first}));
  }
  must(rotation().end_step());
  gpu_.synchronize();  // the next step needs this one's tokens
  for (Request* request : running) {
    served_.computed_tokens += request->token_count - request->cached;
    request->cached = request->token_count++;
    ++request->ran_steps;
  }
  ++served_.steps;
}

void Server::finish(Request& request) {
  must(rotation().end_use(request.blocks));
  must(rotation().release(request.blocks));
  request.blocks.clear();
  request.runs = false;
}

}  // namespace rotate
