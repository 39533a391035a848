// A contender that is a program in two processes of its own: `target` and `writer`. Both are asked
// by lines of JSON on standard input, and answer each with a line on standard output. The protocol
// is told in peers/peer.py.
#pragma once

#include <sys/types.h>

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/status.h"
#include "bench/fabric/buffers.h"
#include "bench/fabric/contender.h"

namespace braid::bench {

struct PeerCommand {
  std::string name;
  std::string python = "python3";
  std::string file;
};

/// Why a contender does not take part.
struct Waiver {
  enum class Kind {
    kMissing,        ///< not installed
    kNotApplicable,  ///< it has nothing like the provider or the pattern
    kFailed,
  };
  std::string name;
  Kind kind = Kind::kFailed;
  std::string cause;
};

/// One of the two processes. Ends with this object.
class PeerProcess {
 public:
  /// Forks: before libfabric is loaded, by a process of one thread. `memory_file` is inherited.
  static Result<std::unique_ptr<PeerProcess>> start(const PeerCommand& command,
                                                    const std::string& role, int memory_file);
  ~PeerProcess();

  /// The answer; an error if there is none in time, with the last words of its standard error.
  Result<nlohmann::json> ask(const nlohmann::json& question);

 private:
  PeerProcess() = default;
  Status failure(const std::string& what);
  Result<std::string> read_line();

  std::string name_;
  pid_t process_ = -1;
  int questions_ = -1, answers_ = -1, errors_ = -1;
  std::string unread_;
};

class PeerProgram final : public Contender {
 public:
  struct Opened {
    std::unique_ptr<PeerProgram> contender;  ///< null: see `waiver`
    Waiver waiver;
  };
  /// `provider` as libfabric names it: the program chooses what is like it.
  static Opened open(const PeerCommand& command, const std::string& provider, Pattern pattern,
                     const Buffers& buffers);

  const std::string& name() const override { return name_; }
  Status prepare(const Load& load) override;
  Status write(const Load& load) override;
  void rest() override;

 private:
  std::string name_;
  std::unique_ptr<PeerProcess> target_, writer_;
};

}  // namespace braid::bench
