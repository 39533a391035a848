// Recorded requests: their arrivals, their lengths, and the prompt blocks that they share. A file
// with an invalid line is refused, with its number and the field.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace braid::serving {

struct TraceEntry {
  int64_t arrival_us = 0;  ///< since the first
  uint32_t prompt_tokens = 0;
  uint32_t output_tokens = 0;
  /// Two prompts share the chunks at their beginning that have equal numbers.
  std::vector<uint32_t> chunks{};
  uint32_t line = 0;  ///< of the file, from 1 on; 0: it comes from none
};

struct Trace {
  std::string name{};               ///< of the file
  std::vector<TraceEntry> entries;  ///< by arrival
  uint32_t chunk_tokens = 0;        ///< 0: the trace does not tell prefixes
  bool has_arrivals = true;
};

/// Reads a file; its first line tells the format:
/// - "TIMESTAMP,ContextTokens,GeneratedTokens": AzurePublicDataset's LLM inference traces;
/// - "{...": Mooncake's (timestamp in ms, input_length, output_length, hash_ids of 512 tokens);
/// - "prompt_tokens,output_tokens": lengths alone.
Result<Trace> read_trace(const std::string& path);
/// Reads a text in the same formats; errors begin with `name`.
Result<Trace> parse_trace(const std::string& text, const std::string& name);

}  // namespace braid::serving
