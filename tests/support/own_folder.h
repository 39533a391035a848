// A folder for the files of one test.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace braid::test {

/// Made new, and removed at the end with all that is in it.
class OwnFolder {
 public:
  /// Another user may not be able to enter the one of $TMPDIR; `in`, such as "/tmp", is for all.
  explicit OwnFolder(const std::filesystem::path& in = std::filesystem::temp_directory_path())
      : path_(in / "braid-test-XXXXXX") {
    if (mkdtemp(path_.data()) != nullptr) return;
    std::perror(path_.c_str());
    std::abort();
  }
  ~OwnFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  OwnFolder(const OwnFolder&) = delete;
  OwnFolder& operator=(const OwnFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace braid::test
