#include "serving/trace.h"

#include <gtest/gtest.h>

#include "serving/workload.h"

namespace braid::serving {
namespace {

constexpr const char* kAzure =
    "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2024-01-01 23:59:59.5000000,100,10\n"
    "2024-01-02 00:00:01.2500000,200,20\n";
constexpr const char* kMooncake =
    R"({"timestamp": 1000, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]})"
    "\n"
    R"({"timestamp": 3000, "input_length": 1030, "output_length": 7, "hash_ids": [0, 2, 3]})"
    "\n";

void expect_refused(const std::string& text, const std::string& where, const std::string& field) {
  const auto trace = parse_trace(text, "t.csv");
  ASSERT_FALSE(trace.ok()) << text;
  EXPECT_NE(trace.status().message().find(where), std::string::npos) << trace.status().message();
  EXPECT_NE(trace.status().message().find(field), std::string::npos) << trace.status().message();
}

TEST(Trace, ReadsAzure) {
  const Trace trace = parse_trace(kAzure, "t.csv").value();
  ASSERT_EQ(trace.entries.size(), 2u);
  EXPECT_EQ(trace.entries[1].arrival_us, 1'750'000);
  EXPECT_EQ(trace.entries[1].line, 3u);
  EXPECT_EQ(trace.entries[1].prompt_tokens, 200u);
  EXPECT_EQ(trace.entries[1].output_tokens, 20u);
  EXPECT_EQ(trace.chunk_tokens, 0u);
}

TEST(Trace, ReadsLinesOfEitherEnd) {
  std::string text = kAzure;
  for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 2)
    text.replace(at, 1, "\r\n");
  EXPECT_EQ(parse_trace(text, "t.csv").value().entries.size(), 2u);
  text.resize(text.size() - 2);  // the last line has no end
  EXPECT_EQ(parse_trace(text, "t.csv").value().entries.size(), 2u);
}

TEST(Trace, ReadsMooncake) {
  const Trace trace = parse_trace(kMooncake, "t.jsonl").value();
  ASSERT_EQ(trace.entries.size(), 2u);
  EXPECT_EQ(trace.entries[1].arrival_us, 2'000'000);
  EXPECT_EQ(trace.entries[1].chunks, (std::vector<uint32_t>{0, 2, 3}));
  EXPECT_EQ(trace.chunk_tokens, 512u);
}

TEST(Trace, ReadsLengths) {
  const Trace trace = parse_trace("prompt_tokens,output_tokens\n12,34\n", "t.csv").value();
  EXPECT_FALSE(trace.has_arrivals);
  EXPECT_EQ(trace.entries[0].prompt_tokens, 12u);
  EXPECT_EQ(trace.entries[0].output_tokens, 34u);
}

TEST(Trace, ABrokenLineIsNamedWithItsField) {
  const std::string header = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
  const std::string good = "2024-01-01 00:00:00.0,1,1\n";
  expect_refused(header + good + "2024-01-01 00:00:00.0,x,1\n", "t.csv:3", "ContextTokens");
  expect_refused(header + "2024-01-01 00:00:00.0,1,-4\n", "t.csv:2", "GeneratedTokens");
  expect_refused(header + "2024-01-01 00:00:00.0,1,0\n", "t.csv:2", "GeneratedTokens");
  expect_refused(header + "2024-01-01T00:00:00.0,1,1\n", "t.csv:2", "TIMESTAMP");
  expect_refused(header + "2024-13-01 00:00:00.0,1,1\n", "t.csv:2", "TIMESTAMP");
  expect_refused(header + "2023-02-29 00:00:00.0,1,1\n", "t.csv:2", "TIMESTAMP");
  expect_refused(header + "2024-04-31 00:00:00.0,1,1\n", "t.csv:2", "TIMESTAMP");
  expect_refused(header + good + "2024-01-01 00:00:00.0,1\n", "t.csv:3", "3 fields");
  expect_refused(header + good + "\n" + good, "t.csv:3", "3 fields");
  expect_refused(std::string(kMooncake) + "{\"timestamp\": 1}\n", "t.csv:3", "input_length");
  expect_refused(std::string(kMooncake) + "{\"timestamp\": \n", "t.csv:3", "JSON");
  expect_refused(
      "{\"timestamp\": 1, \"input_length\": 2, \"output_length\": 3, \"hash_ids\": [1.5]}\n",
      "t.csv:1", "hash_ids");
  expect_refused(
      "{\"timestamp\": 18446744073709551615, \"input_length\": 2, \"output_length\": 3, "
      "\"hash_ids\": [1]}\n",
      "t.csv:1", "timestamp");
  expect_refused("prompt_tokens,output_tokens\n1,99999999999\n", "t.csv:2", "output_tokens");
}

TEST(Trace, ALastDayOfAMonthIsOne) {
  std::string text = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
  for (const char* day : {"2024-02-29", "2024-04-30", "2024-12-31"})
    text += day + std::string(" 00:00:00.0,1,1\n");
  EXPECT_EQ(parse_trace(text, "t.csv").value().entries.size(), 3u);
}

// A chunk that came twice would be one block at two places of a sequence.
TEST(Trace, ChunksAreThoseOfThePrompt) {
  const auto line = [](const char* tokens, const char* chunks) {
    return std::string(R"({"timestamp": 1, "input_length": )") + tokens +
           R"(, "output_length": 3, "hash_ids": [)" + chunks + "]}\n";
  };
  EXPECT_TRUE(parse_trace(line("1024", "7, 5"), "t.jsonl").ok());
  expect_refused(line("1025", "7, 5, 7"), "t.csv:1", "hash_ids has 7 twice");
  expect_refused(line("1024", "7, 5, 6"), "t.csv:1",
                 "hash_ids has 3 numbers, and the prompt has 2 chunks of 512");
}

TEST(Trace, AnUnknownBeginningAndAnEmptyTraceAreRefused) {
  expect_refused("time,in,out\n", "t.csv:1", "no trace that is known");
  expect_refused("TIMESTAMP,ContextTokens,GeneratedTokens\n", "t.csv", "no requests");
  expect_refused("", "t.csv:1", "no trace that is known");
}

// One request a second was recorded, and four a second are wanted.
TEST(Workload, AStretchOfATraceHasTheRate) {
  Trace trace;
  for (uint32_t index = 0; index < 100; ++index)
    trace.entries.push_back({index * 1'000'000, index + 1, 1});
  const Arrivals arrivals{.rate_rps = 4, .seconds = 10};
  const Workload workload = stretch_of_trace(trace, arrivals, 5);
  ASSERT_EQ(workload.requests.size(), 40u);
  for (size_t index = 0; index < 40; ++index)
    EXPECT_NEAR(static_cast<double>(workload.requests[index].arrival_us), 0.25e6 * index, 1e5);
  const Workload other = stretch_of_trace(trace, arrivals, 6);
  EXPECT_NE(other.requests[0].prompt_tokens, workload.requests[0].prompt_tokens);
}

// Common random numbers: another rate serves the same requests, only faster.
TEST(Workload, EqualSeedsServeTheSameRequestsAtAnyRate) {
  const Workload slow = poisson_workload(chat_like(), {.rate_rps = 5, .seconds = 100}, 3);
  const Workload fast = poisson_workload(chat_like(), {.rate_rps = 10, .seconds = 50}, 3);
  ASSERT_EQ(slow.requests.size(), fast.requests.size());
  for (size_t id = 0; id < slow.requests.size(); ++id) {
    EXPECT_EQ(slow.requests[id].prompt_tokens, fast.requests[id].prompt_tokens);
    EXPECT_NEAR(static_cast<double>(slow.requests[id].arrival_us),
                2.0 * static_cast<double>(fast.requests[id].arrival_us), 2);
  }
}

TEST(Workload, ChatsHaveThePublishedMeans) {
  const Workload workload = poisson_workload(chat_like(), {.rate_rps = 100, .seconds = 500}, 1);
  double prompt = 0, output = 0;
  for (const Request& request : workload.requests) {
    prompt += request.prompt_tokens;
    output += request.output_tokens;
  }
  const auto count = static_cast<double>(workload.requests.size());
  EXPECT_NEAR(prompt / count, 161, 8);
  EXPECT_NEAR(output / count, 338, 10);
}

}  // namespace
}  // namespace braid::serving
