#include "prefiller.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numeric>

namespace kv_push {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kWriteLimit{20};
constexpr uint64_t kCacheBytes = cache_bytes(kRequestPagesMax);

}  // namespace

Prefiller::Prefiller(Fabric& fabric, Device& device, Options options)
    : fabric_(fabric),
      device_(device),
      options_(std::move(options)),
      memory_(device.allocate(kCacheBytes + kTailBytes)),
      region_(must(fabric.add_region(memory_, kCacheBytes + kTailBytes))),
      watcher_(must(braid::FabricWatcher::open(
          fabric, device.word_memory(),
          [this](uint64_t old_word, uint64_t word) { post_steps(old_word, word); }))),
      worker_([this] { work(); }) {}

Prefiller::~Prefiller() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
    for (const auto& push : pushes_) push->stop();
  }
  changed_.notify_all();
  worker_.join();
}

void Prefiller::serve(const Bytes& decoder, const std::atomic<bool>& is_leaving) {
  decoder_ = must(fabric_.connect(decoder, seconds(10)));
  must(send(fabric_, decoder_, Join{options_.name}));
  bool has_said_so = false;
  for (;;) {
    if (is_leaving && !has_said_so) {
      (void)send(fabric_, decoder_, Leave{});  // or it has gone, which is told below
      has_said_so = true;
    }
    if (const auto message = must(fabric_.receive(milliseconds(20)))) handle(message->bytes);
    if (must(fabric_.wait_lost(braid::Limit(0)))) return;
  }
}

void Prefiller::handle(const Bytes& bytes) {
  std::optional<Message> message = to_message(bytes);
  if (!message) return die("the decoder says what no decoder of this version says");
  if (auto* dispatch = std::get_if<Dispatch>(&*message)) start(std::move(*dispatch));
  if (const auto* to_cancel = std::get_if<Cancel>(&*message)) cancel(to_cancel->number);
}

void Prefiller::start(Dispatch dispatch) {
  if (dispatch.pages.empty() || dispatch.pages.size() > kRequestPagesMax)
    die("the decoder asks for more pages than a request has");
  auto push = std::make_shared<Push>();
  const auto cache = fabric_.open_target(dispatch.cache);
  const auto tail = fabric_.open_target(dispatch.tail);
  if (!cache.ok() || !tail.ok()) return;  // revoked meanwhile
  push->cache = cache.value();
  push->tail = tail.value();
  push->dispatch = std::move(dispatch);
  const std::lock_guard lock(mutex_);
  pushes_.push_back(std::move(push));
  changed_.notify_all();
}

void Prefiller::cancel(uint64_t number) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(pushes_.begin(), pushes_.end(), [&](const auto& push) {
      return push->dispatch.number == number;
    });
    if (found != pushes_.end()) return (*found)->stop();  // `work` confirms it
  }
  // It was over before, or the dispatch comes later: messages have no order. The decoder revokes
  // its targets once it has this answer, so what is begun then is fenced.
  (void)send(fabric_, decoder_, CancelConfirmed{number});
}

// ---- The thread that computes ----

void Prefiller::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return is_ending_ || !pushes_.empty(); });
    if (is_ending_) return;
    const std::shared_ptr<Push> push = pushes_.front();
    push->first_word = word_;
    computed_ = push;
    lock.unlock();
    const bool is_drained = prefill(*push);
    lock.lock();
    computed_ = nullptr;
    pushes_.pop_front();
    // Without this answer the decoder helps itself by a fence.
    if (is_drained && push->is_stopped())
      (void)send(fabric_, decoder_, CancelConfirmed{push->dispatch.number});
  }
}

/// False: something of it may be under way still.
bool Prefiller::prefill(Push& push) {
  const uint32_t steps = step_count(push.page_count());
  for (uint32_t step = 0; step < steps && !push.is_stopped(); ++step) compute(push, step);
  {
    std::unique_lock token(push.mutex);
    push.posted.wait(token, [&] { return push.is_cancelled || push.steps_posted == steps; });
    if (!push.is_cancelled) post_tail(push);
  }
  return drain(push);
}

void Prefiller::compute(const Push& push, uint32_t index) {
  std::this_thread::sleep_for(std::chrono::microseconds(push.dispatch.step_us));
  const Step step = step_at(index, push.page_count());
  const uint64_t number = push.dispatch.number;
  for (uint32_t i = step.first_page; i < step.first_page + step.page_count; ++i)
    device_.write(memory_ + page_offset(step.layer, i, kRequestPagesMax),
                  page_content(number, step.layer, i));
  if (index + 1 == step_count(push.page_count())) {
    Bytes tail = tail_content(number);
    if (options_.corrupts) tail.back() ^= std::byte{1};
    device_.write(memory_ + kCacheBytes, tail);
  }
  device_.signal(watcher_->word(), ++word_);
}

/// Waits until nothing reads this request's cache any more, or writes the decoder's.
bool Prefiller::drain(const Push& push) {
  bool is_drained = true;
  for (const Fabric::Ticket ticket : push.tickets) {
    const auto state = must(fabric_.wait(ticket, 2 * kWriteLimit));
    is_drained = is_drained &&
                 (state == Fabric::TicketState::kDone || state == Fabric::TicketState::kFailed);
    fabric_.forget(ticket);
  }
  return is_drained;
}

// ---- The engine's thread of callbacks ----

/// Values of the word in between may have gone unseen: all steps up to the latest are posted.
void Prefiller::post_steps(uint64_t old_word, uint64_t word) {
  std::shared_ptr<Push> push;
  {
    const std::lock_guard lock(mutex_);
    push = computed_;
  }
  if (push == nullptr) return;
  const std::lock_guard token(push->mutex);
  for (uint64_t next = std::max(old_word, push->first_word); next < word; ++next)
    if (!push->is_cancelled) post(*push, static_cast<uint32_t>(next - push->first_word));
  push->posted.notify_all();
}

void Prefiller::post(Push& push, uint32_t index) {
  const Step step = step_at(index, push.page_count());
  std::vector<uint32_t> here(step.page_count);
  std::iota(here.begin(), here.end(), step.first_page);
  const auto first = push.dispatch.pages.begin() + step.first_page;
  const auto ticket = fabric_.write_pages(
      region_, pages_of_layer(std::move(here), step.layer, kRequestPagesMax), push.cache,
      pages_of_layer({first, first + step.page_count}, step.layer, push.dispatch.cache_page_count),
      kPageBytes, push.dispatch.immediate, kWriteLimit);
  posted(push, ticket);
  ++push.steps_posted;
}

/// The context, in one write: the last of what the decoder counts.
void Prefiller::post_tail(Push& push) {
  posted(push, fabric_.write(region_, push.tail, {kCacheBytes, 0, kTailBytes},
                             push.dispatch.immediate, kWriteLimit));
}

void Prefiller::posted(Push& push, const braid::Result<Fabric::Ticket>& ticket) {
  if (ticket.ok())
    push.tickets.push_back(ticket.value());
  else
    push.is_cancelled = true;  // the decoder has revoked the target, or has gone
}

}  // namespace kv_push
