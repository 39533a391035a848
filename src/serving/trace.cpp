#include "serving/trace.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/try.h"
#include "topology/json_reader.h"

namespace braid::serving {
namespace {

constexpr std::string_view kAzureHeader = "TIMESTAMP,ContextTokens,GeneratedTokens";
constexpr std::string_view kLengthsHeader = "prompt_tokens,output_tokens";
constexpr uint32_t kMooncakeChunkTokens = 512;
constexpr uint32_t kMostTokens = 10'000'000;
constexpr uint64_t kMostMs = 1'000'000'000'000'000;  // so that the sum of two fits, in microseconds

/// One line of a file, for errors.
struct Line {
  const std::string& file;
  size_t number;
  std::string_view text;

  Status refuse(const std::string& field, const std::string& what) const {
    return Status::error(file + ":" + std::to_string(number) + ": " + field + " " + what,
                         "Mend the line, or leave it out");
  }
};

Result<uint32_t> parse_tokens(const Line& line, const char* field, std::string_view text) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    return line.refuse(field, "is '" + std::string(text) + "', not a whole number");
  if (value == 0 || value > kMostTokens)
    return line.refuse(
        field, "is " + std::string(text) + ", not between 1 and " + std::to_string(kMostTokens));
  return value;
}

template <size_t count>
Result<std::array<std::string_view, count>> split(const Line& line) {
  std::array<std::string_view, count> fields;
  std::string_view rest = line.text;
  for (size_t index = 0; index < count; ++index) {
    const size_t comma = rest.find(',');
    if ((comma == std::string_view::npos) != (index + 1 == count))
      return line.refuse("it", "has not " + std::to_string(count) + " fields");
    fields[index] = rest.substr(0, comma);
    rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 1);
  }
  return fields;
}

// Days since 1970-01-01 of the proleptic Gregorian calendar (Hinnant, "chrono-compatible low-level
// date algorithms").
int64_t days_of(int64_t year, int64_t month, int64_t day) {
  year -= month <= 2;
  const int64_t era = year / 400;
  const int64_t of_era = year - era * 400;
  const int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

bool is_day(int64_t year, int64_t month, int64_t day) {
  if (month < 1 || month > 12 || day < 1) return false;
  const int64_t next_year = month == 12 ? year + 1 : year;
  const int64_t next_month = month == 12 ? 1 : month + 1;
  return day <= days_of(next_year, next_month, 1) - days_of(year, month, 1);
}

// "2023-11-16 18:17:03.9799600"
Result<int64_t> parse_timestamp(const Line& line, std::string_view text) {
  constexpr std::string_view kShape = "dddd-dd-dd dd:dd:dd";
  const auto refuse = [&] {
    return line.refuse("TIMESTAMP",
                       "is '" + std::string(text) + "', not like 2023-11-16 18:17:03.9799600");
  };
  if (text.size() < kShape.size()) return refuse();
  std::array<int64_t, 6> numbers{};  // year, month, day, hour, minute, second
  size_t part = 0;
  for (size_t at = 0; at < kShape.size(); ++at) {
    const bool is_digit = text[at] >= '0' && text[at] <= '9';
    if (kShape[at] == 'd' ? !is_digit : text[at] != kShape[at]) return refuse();
    if (is_digit)
      numbers[part] = numbers[part] * 10 + (text[at] - '0');
    else
      ++part;
  }
  int64_t fraction_us = 0;
  std::string_view rest = text.substr(kShape.size());
  if (!rest.empty()) {
    if (rest[0] != '.' || rest.size() == 1) return refuse();
    rest.remove_prefix(1);
    for (size_t at = 0; at < rest.size(); ++at)
      if (rest[at] < '0' || rest[at] > '9') return refuse();
    for (size_t at = 0; at < 6; ++at)
      fraction_us = fraction_us * 10 + (at < rest.size() ? rest[at] - '0' : 0);
  }
  const auto& [year, month, day, hour, minute, second] = numbers;
  if (!is_day(year, month, day) || hour > 23 || minute > 59 || second > 60) return refuse();
  const int64_t seconds = days_of(year, month, day) * 86400 + hour * 3600 + minute * 60 + second;
  return seconds * 1'000'000 + fraction_us;
}

Result<TraceEntry> parse_azure(const Line& line) {
  BRAID_LET(fields, split<3>(line));
  BRAID_LET(arrival_us, parse_timestamp(line, fields[0]));
  BRAID_LET(prompt, parse_tokens(line, "ContextTokens", fields[1]));
  BRAID_LET(output, parse_tokens(line, "GeneratedTokens", fields[2]));
  return TraceEntry{arrival_us, prompt, output};
}

Result<TraceEntry> parse_lengths(const Line& line) {
  BRAID_LET(fields, split<2>(line));
  BRAID_LET(prompt, parse_tokens(line, "prompt_tokens", fields[0]));
  BRAID_LET(output, parse_tokens(line, "output_tokens", fields[1]));
  return TraceEntry{0, prompt, output};
}

Result<uint64_t> whole_number(const Line& line, const nlohmann::json& object, const char* field) {
  const auto found = object.find(field);
  if (found == object.end()) return line.refuse(field, "is missing");
  if (!found->is_number_unsigned()) return line.refuse(field, "is not a whole number");
  return found->get<uint64_t>();
}

// A number stands for a chunk and all before it, so that no prompt has one twice.
Status check_chunks(const Line& line, const TraceEntry& entry) {
  const size_t most = (entry.prompt_tokens + kMooncakeChunkTokens - 1) / kMooncakeChunkTokens;
  if (entry.chunks.size() > most)
    return line.refuse("hash_ids", "has " + std::to_string(entry.chunks.size()) +
                                       " numbers, and the prompt has " + std::to_string(most) +
                                       " chunks of " + std::to_string(kMooncakeChunkTokens));
  std::vector<uint32_t> sorted = entry.chunks;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end())
    return line.refuse("hash_ids", "has " + std::to_string(*twice) + " twice");
  return {};
}

Result<TraceEntry> parse_mooncake(const Line& line) {
  const nlohmann::json object = nlohmann::json::parse(line.text, nullptr, false);
  if (!object.is_object()) return line.refuse("it", "is not a JSON object");
  BRAID_LET(arrival_ms, whole_number(line, object, "timestamp"));
  BRAID_LET(prompt, whole_number(line, object, "input_length"));
  BRAID_LET(output, whole_number(line, object, "output_length"));
  if (arrival_ms > kMostMs) return line.refuse("timestamp", "is out of range");
  if (prompt == 0 || prompt > kMostTokens) return line.refuse("input_length", "is out of range");
  if (output == 0 || output > kMostTokens) return line.refuse("output_length", "is out of range");
  TraceEntry entry{static_cast<int64_t>(arrival_ms) * 1000, static_cast<uint32_t>(prompt),
                   static_cast<uint32_t>(output)};
  const auto chunks = object.find("hash_ids");
  if (chunks == object.end() || !chunks->is_array()) return line.refuse("hash_ids", "is no array");
  for (const nlohmann::json& chunk : *chunks) {
    if (!chunk.is_number_unsigned() || chunk.get<uint64_t>() > UINT32_MAX)
      return line.refuse("hash_ids", "has something else than whole numbers");
    entry.chunks.push_back(chunk.get<uint32_t>());
  }
  BRAID_TRY(check_chunks(line, entry));
  return entry;
}

using Parse = Result<TraceEntry> (*)(const Line&);

Status parse_lines(std::string_view text, const std::string& name, bool has_header, Parse parse,
                   Trace& trace) {
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view words = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (words.ends_with('\r')) words.remove_suffix(1);
    if ((number == 1 && has_header) || (words.empty() && text.empty())) continue;
    BRAID_LET(entry, parse({name, number, words}));
    entry.line = static_cast<uint32_t>(number);
    trace.entries.push_back(std::move(entry));
  }
  return {};
}

}  // namespace

Result<Trace> parse_trace(const std::string& text, const std::string& name) {
  std::string_view first = std::string_view(text).substr(0, text.find('\n'));
  if (first.ends_with('\r')) first.remove_suffix(1);
  Trace trace;
  trace.name = name;
  if (first == kAzureHeader) {
    BRAID_TRY(parse_lines(text, name, true, parse_azure, trace));
  } else if (first == kLengthsHeader) {
    trace.has_arrivals = false;
    BRAID_TRY(parse_lines(text, name, true, parse_lengths, trace));
  } else if (first.starts_with('{')) {
    trace.chunk_tokens = kMooncakeChunkTokens;
    BRAID_TRY(parse_lines(text, name, false, parse_mooncake, trace));
  } else {
    return Status::error(name + ":1: is the beginning of no trace that is known here",
                         "It is '" + std::string(kAzureHeader) + "', '" +
                             std::string(kLengthsHeader) + "', or a JSON object a line");
  }
  if (trace.entries.empty()) return Status::error(name + " has no requests");
  std::stable_sort(
      trace.entries.begin(), trace.entries.end(),
      [](const TraceEntry& a, const TraceEntry& b) { return a.arrival_us < b.arrival_us; });
  const int64_t first_us = trace.entries.front().arrival_us;
  for (TraceEntry& entry : trace.entries) entry.arrival_us -= first_us;
  return trace;
}

Result<Trace> read_trace(const std::string& path) {
  BRAID_LET(text, topology::read_text(path));
  return parse_trace(text, path);
}

}  // namespace braid::serving
