// Reads JSON that people write, with errors that people can act on: each names the file, the key
// path, what was expected and what was found. For profiles (profile.cpp) and for the cost file
// (multipath/cost_file.cpp).
//
// The reader keeps the first error; reads after it return harmless values, so that code which reads
// a document needs one check, at its end.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace braid::topology {

using Json = nlohmann::ordered_json;

/// A file's text. Errors begin with its path.
Result<std::string> read_text(const std::string& path);

/// JSON text to a document. Errors carry line and column; a key that an object repeats is one.
Result<Json> parse_json(std::string_view text, const std::string& file);

class JsonErrors {
 public:
  explicit JsonErrors(std::string file) : file_(std::move(file)) {}
  /// Keeps the error if it is the first.
  void add(const std::string& path, const std::string& what, const std::string& remedy = {});
  bool ok() const { return first_.ok(); }
  const Status& first() const { return first_; }

 private:
  std::string file_;
  Status first_;
};

/// A value in the document and the key path that leads to it. Borrows the document and the errors.
class JsonNode {
 public:
  JsonNode(const Json* value, std::string path, JsonErrors* errors)
      : value_(value), path_(std::move(path)), errors_(errors) {}

  /// Checks that this is an object with these keys only; `optional` keys may be missing. An unknown
  /// key is reported with the known ones.
  void expect_keys(const std::vector<const char*>& required,
                   const std::vector<const char*>& optional = {}) const;

  JsonNode operator[](const char* key) const;
  std::optional<JsonNode> find(const char* key) const;
  std::vector<JsonNode> items(size_t least, const char* expected) const;  ///< of an array

  double number_above_zero() const;
  double number_from_zero() const;
  int whole_number(int least, int most) const;
  bool truth() const;
  std::string text() const;  ///< a string that is not empty
  /// A string that is one of these. Any other is refused, with the nearest of these.
  std::string known_name(std::span<const char* const> names) const;

  const Json* json() const { return value_; }  ///< null after an error
  void fail(const std::string& expected) const;
  void refuse(const std::string& what, const std::string& remedy = {}) const;

 private:
  std::string path_of(const std::string& key) const;

  const Json* value_;
  std::string path_;
  JsonErrors* errors_;
};

}  // namespace braid::topology
