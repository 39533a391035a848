// Braid's options: one table, read once from the environment. `braid run` sets the environment of
// the program from its command line; a program that preloads braid itself may set it too.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"

namespace braid {

/// Which GPUs may carry other GPUs' bytes.
struct RelayChoice {
  enum class Kind { kAll, kNone, kList } kind = Kind::kAll;
  std::vector<int> gpus;  ///< CUDA ordinals, for kList
  bool allows(int gpu) const;
};

/// "all", "none" or "1,2,5".
Result<RelayChoice> parse_relays(const std::string& text);

enum class StatsFormat { kNone, kText, kJson, kPrometheus };

/// The choice of a mover: multipath/transfer.h, Mover.
enum class MoverChoice { kAuto, kKernel, kCopyEngine };

/// Hardware queues of a context, unless CUDA_DEVICE_MAX_CONNECTIONS sets another number.
inline constexpr int kDefaultHardwareQueues = 8;

/// The user's own table of processes (multipath/process_table.h).
inline constexpr const char* kUsualProcessTable = "usual";

struct Options {
  RelayChoice relays;
  StatsFormat stats = StatsFormat::kNone;  ///< a file or a signal alone also enables one
  std::string stats_file;                  ///< empty: stderr; "%p" stands for the process's number
  int stats_signal = 0;                    ///< 0: none
  int stats_interval_s = 0;                ///< 0: none
  std::string log;                         ///< empty: none; "stderr", or a file's path as above
  uint64_t threshold_bytes = 0;            ///< 0: by the cost model (multipath/cost_model.h)
  bool waits_for_relays = false;           ///< the program waits, when it first pins memory
  std::string costs;  ///< the cost file: a path, "none", or empty: the server's, in cache_folder
  std::string process_table;  ///< lets processes know each other; empty: they do not
  std::string cache_folder;   ///< $XDG_CACHE_HOME or $HOME/.cache; empty: there is none
  int pageable_threads =
      -1;  ///< 0: pageable copies stay native; -1: by CPUs (staging/thread_pool.h)
  MoverChoice mover = MoverChoice::kAuto;
  uint64_t device_memory_bytes = 64 << 20;       ///< of relay buffers on each GPU
  int hardware_queues = kDefaultHardwareQueues;  ///< CUDA_DEVICE_MAX_CONNECTIONS, CUDA's own

  // Not options: only experiments set these (HACKING.md).
  uint64_t slice_bytes = 0;      ///< 0: the default (multipath/slice_size.h)
  uint32_t blocks_per_path = 0;  ///< 0: by kernel (multipath/pull_kernels.cpp)
  bool yields = true;            ///< relays make way for other traffic than braid's
  int favoured_gpu = -1;         ///< relays serve this GPU's transfers first; -1: the longest queue
};

/// One row of the table: what `braid run --help` and docs/options.md show.
struct OptionRow {
  const char* name;    ///< environment variable
  const char* values;  ///< what may be written: "auto|SIZE"
  const char* unit;
  const char* default_text;
  const char* meaning;
  const char* justification;  ///< the measurement behind the default
};

const std::vector<OptionRow>& option_table();

/// Limits of the options' values.
inline constexpr uint64_t kLeastSliceBytes = 16;
inline constexpr uint64_t kMostSliceBytes = uint64_t{1} << 30;
inline constexpr uint64_t kLeastDeviceMemoryBytes = 4 << 20;  ///< one relay buffer

/// Names in this process's environment that begin with BRAID_ and are no options: misspelt, or
/// another product's.
std::vector<std::string> unknown_variables();

/// Reads every option with `get`: getenv, or a test's map; a null or empty value is the default.
/// The error names the variable, its text and what was expected.
Result<Options> read_options(const std::function<const char*(const char* name)>& get = std::getenv);

}  // namespace braid
