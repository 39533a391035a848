// Rail: buffers of this side that peers may access.
#include <vector>

#include "base/try.h"
#include "transfer/rail.h"

namespace braid::transfer {
namespace {

constexpr uint64_t kRevokeNs = 1'000'000'000;  // that a peer has to give back a grant

}  // namespace

Status Rail::add_buffer(const Buffer& buffer) {
  BRAID_LET(region, engine_->add_region(buffer.memory));
  regions_[buffer.id] = region;
  return {};
}

void Rail::retire_buffer(uint64_t buffer) {
  if (!regions_.contains(buffer)) return;
  retired_.push_back(buffer);
  links_.for_each([&](uint64_t, Link& link) {
    if (const auto grant = link.grants.find(buffer); grant != link.grants.end())
      (void)engine_->revoke(grant->second.grant, now_ns_ + kRevokeNs);
    if (const auto loan = link.loans.find(buffer); loan != link.loans.end())
      (void)engine_->revoke(loan->second.grant, now_ns_ + kRevokeNs);
  });
  look_after_buffers();
}

/// If a peer does not give back a grant in time, the end of its link fences the grant.
void Rail::look_after_buffers() {
  std::erase_if(retired_, [&](uint64_t buffer) {
    std::vector<uint64_t> held;
    const auto let_go = [&](uint64_t grant) {
      const Result<fabric::Fence> fence = engine_->fence(grant);
      if (fence.ok() && fence.value() == fabric::Fence::kFenced)
        (void)engine_->forget_grant(grant);
      else if (fence.ok())
        return fence.value() != fabric::Fence::kQuarantined;
      return true;
    };
    links_.for_each([&](uint64_t id, Link& link) {
      if (link.is_closed) return;
      if (const auto grant = link.grants.find(buffer); grant != link.grants.end()) {
        if (!let_go(grant->second.grant)) held.push_back(id);
        if (!engine_->fence(grant->second.grant).ok()) link.grants.erase(grant);
      }
      if (const auto loan = link.loans.find(buffer); loan != link.loans.end()) {
        if (!let_go(loan->second.grant)) held.push_back(id);
        if (!engine_->fence(loan->second.grant).ok()) link.loans.erase(loan);
      }
    });
    for (const uint64_t id : held) lose(id, fabric::PeerFailure::kSilent);
    if (!engine_->remove_region(regions_.at(buffer)).ok()) return false;
    regions_.erase(buffer);
    return true;
  });
}

}  // namespace braid::transfer
