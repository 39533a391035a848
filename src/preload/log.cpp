#include "preload/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "multipath/statistics_json.h"
#include "preload/descriptor.h"
#include "preload/process_path.h"

namespace braid::preload {
namespace {

constexpr size_t kLineBytes = 512;  // one write, so that lines of several threads stay whole

// The default streams have numbers for handles.
void write_stream(CUstream stream, TextWriter& out) {
  if (stream == CU_STREAM_LEGACY)
    out << "legacy";
  else if (stream == CU_STREAM_PER_THREAD)
    out << "per_thread";
  else
    out.hex(reinterpret_cast<uint64_t>(stream));
}

// "0,3": ordinals of the bits that are set.
void write_gpus(uint64_t gpus, TextWriter& out) {
  for (int gpu = 0; gpus != 0; ++gpu, gpus >>= 1)
    if ((gpus & 1) != 0) out << gpu << (gpus == 1 ? "" : ",");
}

// What the cost model expected of the movers that could have been taken: "native:1213,kernel:402".
void write_forecast(const multipath::Forecast& forecast, TextWriter& out) {
  const char* between = " expected_us=";
  for (int mover = 0; mover < multipath::kMoverCount; ++mover) {
    const double expected_us = forecast.expected_us[static_cast<size_t>(mover)];
    if (expected_us == 0) continue;
    out << between << multipath::mover_name(static_cast<multipath::Mover>(mover)) << ":"
        << static_cast<uint64_t>(expected_us);
    between = ",";
  }
  if (forecast.paths != 0) out << " available=" << forecast.paths;
}

int open_log(std::string_view where, int64_t pid) noexcept {
  if (where == "stderr") return STDERR_FILENO;
  return open(ProcessPath(where, pid).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
}

void close_log(int descriptor) noexcept {
  if (descriptor != STDERR_FILENO) close(descriptor);
}

}  // namespace

void write_log_line(int64_t pid, const CopyRecord& record, TextWriter& out) {
  out << "braid: copy pid=" << pid << " entry_point=" << entry_point_name(record.entry_point)
      << " bytes=" << record.size_bytes;
  if (record.batch != nullptr) {
    out << " direction=" << multipath::direction_name(record.batch->direction)
        << " gpu=" << record.gpu << " stream=";
    write_stream(record.batch->stream, out);
    out << " priority=" << multipath::priority_name(record.batch->priority);
  }
  const multipath::Outcome& outcome = record.outcome;
  out << " outcome=" << multipath::verdict_name(outcome.verdict)
      << " mover=" << multipath::mover_name(outcome.mover);
  if (outcome.mover != multipath::Mover::kNative) {
    out << " via=";
    write_gpus(outcome.via, out);
    out << " slice_bytes=" << outcome.slice_bytes;
  }
  if (outcome.verdict == multipath::Verdict::kAccelerated)
    out << " why=" << multipath::reason_name(outcome.forecast.reason);
  write_forecast(outcome.forecast, out);
  out << " cost_ns=" << record.cost_ns << "\n";
}

bool append_log_line(std::string_view where, int64_t pid, const CopyRecord& record) noexcept {
  Descriptor log{open_log(where, pid)};
  if (log.number < 0) return false;
  {
    char line[kLineBytes];
    TextWriter out(line, write_to_descriptor, &log);
    write_log_line(pid, record, out);
  }
  close_log(log.number);
  return true;
}

Result<std::string> find_log(const std::string& where, int64_t pid) {
  std::string path = where == "stderr" ? where : std::filesystem::absolute(where).string();
  const int descriptor = open_log(path, pid);
  if (descriptor < 0)
    return Status::error("BRAID_LOG: '" + path + "' cannot be written: " + std::strerror(errno));
  close_log(descriptor);
  return path;
}

}  // namespace braid::preload
