// braid as its users have it, as a contender: Fabric of include/braid/fabric.h on both sides.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "bench/fabric/contender.h"
#include "bench/fabric/target_process.h"
#include "braid/fabric.h"

namespace braid::bench {

class LibraryContender final : public Contender {
 public:
  /// `source` and `target` outlive it.
  LibraryContender(const Rails& rails, TargetProcess& target, std::span<std::byte> source);

  const std::string& name() const override { return name_; }
  Status prepare(const Load& load) override;
  Status write(const Load& load) override;
  void rest() override { target_.serve(TargetProcess::Serves::kNobody); }

 private:
  struct Peer {
    Fabric::Member member;
    Fabric::Immediate written = 0;
  };

  Peer open_member(size_t index);
  Result<Fabric::Ticket> post(const Load& load, uint64_t first);

  std::string name_ = "braid";
  TargetProcess& target_;
  Fabric fabric_;
  Fabric::Region region_{};
  std::vector<Peer> peers_;
  Fabric::Group group_{};
};

}  // namespace braid::bench
