// What is in the library, without its threads and its C interface, and the raw loop: contenders
// that write from this process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/fabric/contender.h"
#include "bench/fabric/target_process.h"

namespace braid::bench {

class EngineContender final : public Contender {
 public:
  /// `source` and `target` outlive it.
  EngineContender(const Rails& rails, TargetProcess& target, std::span<std::byte> source);

  const std::string& name() const override { return name_; }
  Status prepare(const Load& load) override;
  Status write(const Load& load) override;
  void rest() override { target_.serve(TargetProcess::Serves::kNobody); }

 private:
  void open_member(size_t index);
  Result<uint64_t> post(const Load& load, uint64_t first);
  Result<bool> has_ended(uint64_t ticket);

  std::string name_ = "engine";
  TargetProcess& target_;
  std::unique_ptr<fabric::Engine> engine_;
  uint64_t region_ = 0;
  std::vector<fabric::GroupMember> members_;
  uint64_t group_ = 0;
};

/// The raw loop. `is_gathering`: several pages of a write go in one posting, as braid's do.
class PlainContender final : public Contender {
 public:
  PlainContender(const Rails& rails, TargetProcess& target, std::span<std::byte> source,
                 bool is_gathering = false);

  const std::string& name() const override { return name_; }
  Status prepare(const Load& load) override;
  Status write(const Load& load) override;
  void rest() override { target_.serve(TargetProcess::Serves::kNobody); }

 private:
  Status write_barriers(uint64_t count);

  const bool is_gathering_;
  std::string name_ = is_gathering_ ? "plain_several" : "plain";
  TargetProcess& target_;
  Plain plain_;
};

}  // namespace braid::bench
