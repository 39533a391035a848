#include "tools/write_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace braid::tools {
namespace {

namespace fs = std::filesystem;

bool write_all(int to, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(to, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

// False: errno says why.
bool write_and_close(int file, std::string_view text) {
  const bool is_written = write_all(file, text);
  const int error = errno;
  const bool is_closed = close(file) == 0;
  if (!is_written) errno = error;
  return is_written && is_closed;
}

// Opened by its name it would be written from its beginning.
bool is_standard_output(const struct stat& facts) {
  struct stat output {};
  return fstat(STDOUT_FILENO, &output) == 0 && facts.st_dev == output.st_dev &&
         facts.st_ino == output.st_ino;
}

// False: nothing has changed.
bool replace(const std::string& path, mode_t mode, bool keeps_mode, std::string_view text) {
  const std::string draft = path + "." + std::to_string(getpid());
  const int file = open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
  if (file < 0) return false;
  if (keeps_mode) (void)!fchmod(file, mode);
  if (write_and_close(file, text) && rename(draft.c_str(), path.c_str()) == 0) return true;
  const int error = errno;
  unlink(draft.c_str());
  errno = error;
  return false;
}

bool write_in_place(const std::string& path, std::string_view text) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  return file >= 0 && write_and_close(file, text);
}

bool write(const std::string& path, std::string_view text) {
  struct stat facts {};
  const bool is_there = stat(path.c_str(), &facts) == 0;
  if (is_there && is_standard_output(facts)) {
    std::fflush(stdout);
    return write_all(STDOUT_FILENO, text);
  }
  if (is_there && !S_ISREG(facts.st_mode)) return write_in_place(path, text);
  std::error_code dangling;
  if (!is_there && fs::is_symlink(path, dangling)) return write_in_place(path, text);
  if (!is_there) return replace(path, 0666, false, text);
  const fs::path place = fs::canonical(path, dangling);
  if (replace(place, facts.st_mode & 0777, true, text)) return true;
  const bool is_shut = errno == EACCES || errno == EPERM || errno == EROFS || errno == EBUSY;
  return is_shut && write_in_place(path, text);
}

}  // namespace

Status write_file(const std::string& path, std::string_view text) {
  errno = 0;
  if (write(path, text)) return {};
  return cannot_write(path, errno, text.size());
}

Status make_folder(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error) || fs::create_directory(path, error)) return {};
  return Status::error("the folder '" + path +
                           "' cannot be made: " + (error ? error.message() : "a file has its name"),
                       "Name a folder in one that is there, where you may write");
}

Status cannot_write(const std::string& path, int error, uint64_t size_bytes) {
  const std::string what = "cannot write '" + path + "': " + std::strerror(error);
  std::error_code ignored;
  const fs::file_status there = fs::status(path, ignored);
  if (error != ENOSPC || (fs::exists(there) && !fs::is_regular_file(there)))
    return Status::error(what, "Name a file in a folder that is there, where you may write");
  const std::string folder = fs::weakly_canonical(fs::absolute(path), ignored).parent_path();
  const fs::space_info space = fs::space(folder, ignored);
  const std::string room = ignored ? "" : " has " + std::to_string(space.available) + " free";
  return Status::error(what + ". The file needs " + std::to_string(size_bytes) + " bytes, and " +
                           folder + (room.empty() ? " is full" : room),
                       "Remove something there, or name a file in another folder");
}

}  // namespace braid::tools
