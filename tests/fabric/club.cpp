// World: barriers. A club is some processes that know each other; each enters one barrier after the
// other, until one fails. The truant of a club stays away at some time.
#include <algorithm>
#include <string>

#include "fabric/world_parts.h"

namespace braid::fabric::test {
namespace {

constexpr uint64_t kLongNs = 20'000'000;

}  // namespace

void World::found_club() {
  auto club = std::make_unique<Club>();
  for (Process* process : hosts_) {
    if (!process->is_alive || process->is_paused) continue;
    const bool knows_all =
        std::all_of(club->members.begin(), club->members.end(), [&](const Club::Member& member) {
          return knows(*process, *member.process) && knows(*member.process, *process);
        });
    if (!knows_all) continue;
    club->members.emplace_back();
    club->members.back().process = process;
  }
  const size_t count = club->members.size();
  if (count < 2) return;
  club->rounds = random_.between(1, 4);
  club->is_hasty = has_faults_ && random_.chance(0.4);
  if (random_.chance(0.3)) {
    club->truant = random_.below(count);
    club->truant_after = random_.below(club->rounds);
  }
  for (Club::Member& member : club->members) {
    member.heard.resize(count);
    for (uint32_t& immediate : member.heard)
      immediate = member.process->engine->counters().acquire().value();
  }
  for (size_t i = 0; i < count; ++i) {
    Club::Member& member = club->members[i];
    std::vector<GroupMember> others;
    for (size_t j = 0; j < count; ++j)
      if (j != i) {
        const Club::Member& other = club->members[j];
        others.push_back(
            {*member.process->engine->find_peer(other.process->engine->address().engine), 0,
             other.heard[i], member.heard[j]});
        member.peers.push_back(others.back().peer);
      } else {
        member.peers.push_back(0);
      }
    const Result<uint64_t> group = member.process->engine->add_group(others);
    if (!group.ok()) throw Bug("cannot make a group: " + group.status().message());
    member.group = group.value();
  }
  clubs_.push_back(std::move(club));
  for (size_t i = 0; i < count; ++i) enter_later(*clubs_.back(), i, 200);
}

void World::enter_later(Club& club, size_t index, double within_us) {
  club.members[index].is_to_enter = true;
  simulation_.after_us(us(0, within_us), [this, &club, index] {
    Process& process = *club.members[index].process;
    if (!process.is_alive) return;
    if (process.is_paused) return enter_later(club, index, 100);
    enter(club, index);
  });
}

void World::enter(Club& club, size_t index) {
  Club::Member& member = club.members[index];
  member.is_to_enter = false;
  if (club.truant == index && member.entered == club.truant_after) return;
  const uint64_t deadline_ns =
      now_ns() + (club.is_hasty ? static_cast<uint64_t>(1000 * us(5, 300)) : kLongNs);
  const Result<uint64_t> ticket = member.process->engine->barrier(member.group, deadline_ns);
  if (!ticket.ok()) {
    if (std::all_of(club.members.begin(), club.members.end(), [&](const Club::Member& other) {
          return &other == &member || knows(*member.process, *other.process);
        }))
      throw Bug("cannot enter a barrier: " + ticket.status().message());
    return;
  }
  for (const Club::Member& other : club.members)
    if (kills_a_rail_ && &other != &member &&
        !knows_of_killed_rail(*member.process, *other.process))
      club.may_fail = true;
  ++member.entered;
  ++counts_.barriers;
  member.ticket = ticket.value();
  member.entered_ns = now_ns();
  member.deadline_ns = deadline_ns;
  Asked asked;
  asked.club = &club;
  asked.member = index;
  ask_ticket(*member.process, member.ticket, asked);
  say("process " + std::to_string(member.process->host) + " enters barrier " +
      std::to_string(member.entered));
  wake(*member.process);
}

/// Nobody comes out before all have come in, and who has not come is named.
void World::barrier_ended(Club& club, size_t index) {
  Club::Member& member = club.members[index];
  Engine& engine = *member.process->engine;
  const bool is_done = engine.state(member.ticket).value() == TicketState::kDone;
  const std::vector<uint64_t> missing = engine.missing(member.ticket).value();
  say("process " + std::to_string(member.process->host) + " comes out of barrier " +
      std::to_string(member.entered) + (is_done ? "" : ", which has failed"));
  if (is_done != missing.empty()) throw Bug("a barrier that has failed names nobody");
  for (size_t i = 0; i < club.members.size(); ++i) {
    if (i == index) continue;
    const bool is_named =
        std::find(missing.begin(), missing.end(), member.peers[i]) != missing.end();
    if (!is_named && club.members[i].entered < member.entered)
      throw Bug("a barrier is reached early");
    if (is_named && !may_be_missing(club, index, i))
      throw Bug("a barrier names a member that had come");
  }
  engine.forget(member.ticket);
  member.ticket = 0;
  if (is_done && member.entered < club.rounds) enter_later(club, index, 50);
}

void World::check_clubs() const {
  for (const auto& club : clubs_)
    for (const Club::Member& member : club->members) {
      if (!member.process->is_alive) continue;
      const Engine& engine = *member.process->engine;
      const bool is_swallowed =
          std::any_of(club->members.begin(), club->members.end(), [&](const Club::Member& other) {
            return may_be_swallowed(*member.process, *other.process);
          });
      const bool is_in_one = member.ticket != 0;
      if (is_in_one &&
          (!is_swallowed || engine.state(member.ticket).value() == TicketState::kPending))
        throw Bug("a hang: a barrier is pending for ever");
      for (size_t i = 0; i < club->members.size(); ++i)
        if (member.process->engine->counters().count(member.heard[i]) > club->members[i].entered)
          throw Bug("a doubled immediate: of a barrier");
    }
}

}  // namespace braid::fabric::test
