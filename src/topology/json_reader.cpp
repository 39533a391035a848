#include "topology/json_reader.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>
#include <sstream>
#include <utility>

namespace braid::topology {
namespace {

std::string line_and_column(std::string_view text, size_t offset) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const size_t start = before.rfind('\n') + 1;  // npos + 1 is 0: the first line
  return "line " + std::to_string(line) + ", column " + std::to_string(before.size() - start + 1);
}

// nlohmann's text without its own prefix: "[json.exception.parse_error.101] parse error at line 3,
// column 5: syntax error while ...; expected ..." to what follows the place.
std::string reason(const std::string& what) {
  const size_t colon = what.find(": ");
  return colon == std::string::npos ? what : what.substr(colon + 2);
}

// Notices keys that an object has twice, which the parser itself lets pass.
class RepeatedKeys {
 public:
  bool see(Json::parse_event_t event, const Json& parsed) {
    using Event = Json::parse_event_t;
    if (event == Event::object_start) open_.emplace_back();
    if (event == Event::object_end) open_.pop_back();
    if (event == Event::key && !open_.back().insert(parsed.get<std::string>()).second &&
        first_.empty())
      first_ = parsed.get<std::string>();
    return true;
  }
  const std::string& first() const { return first_; }

 private:
  std::vector<std::set<std::string>> open_;
  std::string first_;
};

// Letters to put in, take out or replace, to make one text of the other (Wagner and Fischer).
size_t edit_distance(std::string_view from, std::string_view to) {
  std::vector<size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < from.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < to.size(); ++j) {
      const size_t replaced = diagonal + (from[i] == to[j] ? 0 : 1);
      diagonal = std::exchange(row[j + 1], std::min({replaced, row[j] + 1, row[j + 1] + 1}));
    }
  }
  return row.back();
}

std::string excerpt(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  constexpr size_t kMost = 60;
  return text.size() <= kMost ? text : text.substr(0, kMost) + "...";
}

}  // namespace

Result<std::string> read_text(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    return Status::error(path + ": is a folder", "Name a JSON file");
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file) return Status::error(path + ": cannot be read: " + std::strerror(errno));
  return text.str();
}

Result<Json> parse_json(std::string_view text, const std::string& file) {
  RepeatedKeys keys;
  Json document;
  try {
    document = Json::parse(text, [&keys](int, Json::parse_event_t event, Json& parsed) {
      return keys.see(event, parsed);
    });
  } catch (const Json::parse_error& error) {
    const size_t offset = error.byte == 0 ? 0 : error.byte - 1;
    return Status::error(file + ": " + line_and_column(text, offset) +
                         ": not JSON: " + reason(error.what()));
  } catch (const Json::exception& error) {  // such as a number that no double can hold
    return Status::error(file + ": not JSON: " + reason(error.what()));
  }
  if (!keys.first().empty())
    return Status::error(file + ": the key \"" + keys.first() + "\" is twice in one object",
                         "Remove one of them");
  return document;
}

void JsonErrors::add(const std::string& path, const std::string& what, const std::string& remedy) {
  if (!ok()) return;
  first_ = Status::error(file_ + ": " + (path.empty() ? "" : path + ": ") + what, remedy);
}

std::string JsonNode::path_of(const std::string& key) const {
  return path_.empty() ? key : path_ + "." + key;
}

void JsonNode::fail(const std::string& expected) const {
  if (value_ != nullptr)
    errors_->add(path_, "expected " + expected + ", found " + excerpt(*value_));
}

void JsonNode::refuse(const std::string& what, const std::string& remedy) const {
  if (value_ != nullptr) errors_->add(path_, what, remedy);
}

void JsonNode::expect_keys(const std::vector<const char*>& required,
                           const std::vector<const char*>& optional) const {
  if (value_ == nullptr) return;
  std::vector<std::string> known(required.begin(), required.end());
  known.insert(known.end(), optional.begin(), optional.end());
  if (!value_->is_object()) {
    std::string list;
    for (const char* key : required) list += (list.empty() ? "" : ", ") + std::string(key);
    return fail("an object with " + list);
  }
  for (const auto& [key, value] : value_->items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    std::string names;
    for (const std::string& name : known) names += (names.empty() ? "" : ", ") + name;
    return errors_->add(path_of(key), "unknown key", "The known ones are " + names);
  }
  for (const char* key : required)
    if (!value_->contains(key)) return errors_->add(path_of(key), "missing");
}

std::optional<JsonNode> JsonNode::find(const char* key) const {
  if (value_ == nullptr || !value_->is_object() || !value_->contains(key)) return {};
  return JsonNode(&value_->at(key), path_of(key), errors_);
}

JsonNode JsonNode::operator[](const char* key) const {
  if (auto found = find(key)) return *found;
  if (value_ != nullptr) errors_->add(path_of(key), "missing");
  return JsonNode(nullptr, path_of(key), errors_);
}

std::vector<JsonNode> JsonNode::items(size_t least, const char* expected) const {
  std::vector<JsonNode> nodes;
  if (value_ == nullptr) return nodes;
  if (!value_->is_array() || value_->size() < least) {
    fail(expected);
    return nodes;
  }
  for (size_t i = 0; i < value_->size(); ++i)
    nodes.emplace_back(&value_->at(i), path_ + "[" + std::to_string(i) + "]", errors_);
  return nodes;
}

double JsonNode::number_above_zero() const {
  if (value_ != nullptr && value_->is_number() && value_->get<double>() > 0)
    return value_->get<double>();
  fail("a number above 0");
  return 1;
}

double JsonNode::number_from_zero() const {
  if (value_ != nullptr && value_->is_number() && value_->get<double>() >= 0)
    return value_->get<double>();
  fail("a number of 0 or more");
  return 0;
}

int JsonNode::whole_number(int least, int most) const {
  if (value_ != nullptr && value_->is_number()) {
    const double number = value_->get<double>();
    if (number >= least && number <= most && std::floor(number) == number)
      return static_cast<int>(number);
  }
  fail("a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  return least;
}

bool JsonNode::truth() const {
  if (value_ != nullptr && value_->is_boolean()) return value_->get<bool>();
  fail("true or false");
  return false;
}

std::string JsonNode::text() const {
  if (value_ != nullptr && value_->is_string() && !value_->get_ref<const std::string&>().empty())
    return value_->get<std::string>();
  fail("text in quotes");
  return {};
}

std::string JsonNode::known_name(std::span<const char* const> names) const {
  const std::string name = text();
  size_t least = std::string::npos;
  std::string nearest;
  for (const char* const known : names) {
    const size_t distance = edit_distance(name, known);
    if (distance == 0) return name;
    if (distance < least) nearest.clear();
    if (distance <= least) nearest += (nearest.empty() ? "" : ", ") + std::string(known);
    least = std::min(least, distance);
  }
  refuse("there is no \"" + name + "\"", "The nearest names are " + nearest);
  return name;
}

}  // namespace braid::topology
