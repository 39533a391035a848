// World: the process whose memory it is.
#include <string>
#include <utility>

#include "fabric/world_parts.h"

namespace braid::fabric::test {

void World::begin_job(Process& owner) {
  std::vector<Process*> others;
  for (Process* other : hosts_) {
    if (other == &owner || !other->is_alive) continue;
    const auto peer = owner.engine->find_peer(other->engine->address().engine);
    if (peer && owner.engine->peer_state(*peer).ok() &&
        owner.engine->peer_state(*peer).value() == PeerState::kConnected)
      others.push_back(other);
  }
  if (others.empty()) return;
  auto job = std::make_unique<Job>();
  job->owner = &owner;
  job->writer = others[random_.below(others.size())];
  job->number = static_cast<uint32_t>(jobs_.size() + 1);
  if (!choose_pages(*job)) return;
  const uint64_t peer = *owner.engine->find_peer(job->writer->engine->address().engine);
  choose_immediate(*job);
  if (job->kind != Kind::kNotify) {
    owner.memory.give(job->first_page, job->page_count, job->number);
    Result<Granted> granted = owner.engine->grant(
        owner.memory_region, peer, job->first_page * kPageBytes, job->page_count * kPageBytes);
    if (!granted.ok()) throw Bug("cannot grant: " + granted.status().message());
    job->grant = granted.value().grant;
    job->granted_to = peer;
    job->descriptor = granted.value().descriptor;
  }
  job->is_hasty = has_faults_ && random_.chance(0.4);
  job->deadline_ns = now_ns() + static_cast<uint64_t>(1000 * (job->is_hasty ? us(5, 150) : 20'000));
  say("write " + std::to_string(job->number) + ": process " + std::to_string(job->writer->host) +
      " to " + std::to_string(owner.host) + ", pages " + std::to_string(job->first_page) + " +" +
      std::to_string(job->page_count));
  --owner.jobs_to_begin;
  ++counts_.writes;
  jobs_.push_back(std::move(job));
}

/// Some are numbers that the owner claims late, when the first may have arrived.
void World::choose_immediate(Job& job) {
  constexpr uint32_t kChosenSlot = 5;
  const bool is_in_use =
      std::any_of(jobs_.begin(), jobs_.end(), [&](const std::unique_ptr<Job>& other) {
        return other->owner == job.owner && slot_of(other->immediate) == kChosenSlot &&
               !other->has_arrived && !other->has_given_up;
      });
  job.is_claimed = is_in_use || random_.chance(0.6);
  job.immediate = job.is_claimed ? job.owner->engine->counters().acquire().value()
                                 : make_immediate(kChosenSlot, job.owner->next_epoch++);
  if (job.is_claimed) ask_counts(job);
}

bool World::choose_pages(Job& job) {
  const Slicing& slicing = engine_options_.slicing;
  const uint64_t which = random_.below(8);
  job.kind = which == 0 ? Kind::kNotify : which < 5 ? Kind::kSingle : Kind::kPaged;
  if (job.kind == Kind::kNotify) {
    job.expected = 1;
    return true;
  }
  job.page_count = random_.between(1, kPagesOfAWriteMax);
  job.first_page = job.owner->memory.find_free(job.page_count);
  if (job.first_page == kPages) return false;
  if (job.kind == Kind::kSingle) {
    job.size_bytes = random_.chance(0.1) ? 0 : random_.between(1, job.page_count * kPageBytes);
    job.expected = immediates_of_write(job.size_bytes, slicing);
    return true;
  }
  job.size_bytes = random_.between(0, kPageBytes);
  for (uint32_t page = 0; page < job.page_count; ++page)
    if (random_.chance(0.8)) job.pages.push_back(page);
  for (size_t i = job.pages.size(); i > 1; --i)
    std::swap(job.pages[i - 1], job.pages[random_.below(i)]);
  job.expected = immediates_of_pages(job.size_bytes, job.pages.size(), slicing);
  return true;
}

/// The writer learns of it by a message, if it has a buffer for one.
void World::offer(Job& job) {
  if (job.order.empty()) {
    job.order = encode(job.descriptor);
    for (size_t i = 0; i < sizeof job.number; ++i)
      job.order.push_back(static_cast<std::byte>(job.number >> 8 * i));
  }
  const auto writer = job.owner->engine->find_peer(job.writer->engine_number);
  job.is_offered = writer && job.owner->engine->send(*writer, job.order).ok();
}

void World::look_after_own(Process& owner) {
  for (const auto& each : jobs_) {
    Job& job = *each;
    if (job.owner != &owner || job.is_over) continue;
    if (!job.is_offered && !job.has_given_up) offer(job);
    if (!job.is_claimed && random_.chance(0.3)) claim(job);
    if (!job.is_claimed) {
      wake_at(owner, now_ns() + 20'000);
      continue;
    }
    if (!job.has_arrived && !job.has_given_up) {
      const uint64_t count = owner.engine->counters().count(job.immediate);
      if (count > job.expected)
        throw Bug("a doubled immediate: write " + std::to_string(job.number) + " has " +
                  std::to_string(count) + " of " + std::to_string(job.expected));
      if (count == job.expected && job.is_offered)
        count_reached(job);
      else if (now_ns() >= job.deadline_ns)
        give_up(job);
      else
        wake_at(owner, job.deadline_ns);
    }
    if (job.has_given_up || job.has_arrived) watch_fence(job);
  }
}

void World::claim(Job& job) {
  if (!job.owner->engine->counters().claim(job.immediate).ok())
    throw Bug("cannot claim an immediate");
  job.is_claimed = true;
  ask_counts(job);
}

void World::count_reached(Job& job) {
  say("write " + std::to_string(job.number) + " has arrived");
  ++counts_.arrived;
  check_whole(job, "the owner");
  job.has_arrived = true;
  Engine& engine = *job.owner->engine;
  take_events(*job.owner);
  if (job.count_told < job.expected) throw Bug("a count that is reached was not told");
  job.is_released = true;
  if (!engine.release_immediate(job.immediate, 0).ok()) throw Bug("cannot release an immediate");
  if (!job.grant) return;
  // With its count, a write has ended: its memory is free at once. Only the leave goes on.
  job.owner->memory.take_back(job.first_page, job.page_count);
  if (!engine.revoke(*job.grant, now_ns() + 100'000).ok()) throw Bug("cannot revoke");
}

void World::give_up(Job& job) {
  say("write " + std::to_string(job.number) + " is given up");
  job.has_given_up = true;
  Engine& engine = *job.owner->engine;
  const uint64_t count = engine.counters().count(job.immediate);
  job.is_released = true;
  if (!engine.release_immediate(job.immediate, job.expected - count).ok())
    throw Bug("cannot release an immediate");
  if (!job.grant) return;
  job.fence_deadline_ns = now_ns() + static_cast<uint64_t>(1000 * us(5, 500));
  if (!engine.revoke(*job.grant, job.fence_deadline_ns).ok()) throw Bug("cannot revoke");
}

void World::watch_fence(Job& job) {
  Engine& engine = *job.owner->engine;
  if (!job.grant) {
    job.is_over = true;
    return;
  }
  const Result<Fence> fence = engine.fence(*job.grant);
  if (!fence.ok()) throw Bug("a grant is gone");
  if (fence.value() == Fence::kQuarantined && !job.was_quarantined) {
    say("write " + std::to_string(job.number) + " is quarantined");
    ++counts_.quarantined;
    job.was_quarantined = true;
  }
  if (fence.value() != Fence::kFenced) return;
  job.fenced_ns = now_ns();
  say("write " + std::to_string(job.number) + " is fenced");
  ++counts_.fenced;
  if (!job.has_arrived) {
    check_no_other_bytes(job);
    job.owner->memory.take_back(job.first_page, job.page_count);
    engine.counters().forgive(job.immediate);
  }
  if (!engine.forget_grant(*job.grant).ok()) throw Bug("cannot forget a fenced grant");
  job.is_over = true;
}

void World::check_whole(const Job& job, const char* who) const {
  const MutableBytes bytes = job.owner->memory.bytes();
  job.for_each_byte([&](size_t place, size_t) {
    if (bytes[place] != byte_of(job.number, place))
      throw Bug("byte " + std::to_string(place) + " of write " + std::to_string(job.number) +
                " is not there, although " + who + " was told so");
  });
}

void World::check_no_other_bytes(const Job& job) const {
  const MutableBytes bytes = job.owner->memory.bytes();
  const size_t first = job.first_page * kPageBytes;
  for (size_t place = first; place < first + job.page_count * kPageBytes; ++place)
    if (bytes[place] != byte_of(job.number, place) &&
        bytes[place] != byte_before(job.number, place))
      throw Bug("a foreign byte is at " + std::to_string(place) + ", in the pages of write " +
                std::to_string(job.number));
}

}  // namespace braid::fabric::test
