// Asks a running engine how it does: the report of braid_transfer_report, as JSON. Question and
// answer are sealed frames (sealed.h), alike in every version; engines that are older than them
// close the connection.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fabric/seal.h"
#include "transfer/directory/names.h"
#include "transfer/types.h"

namespace braid::transfer {

/// Blocks until `end_ns` of CLOCK_MONOTONIC at most. `store`: as of `resolve`.
Result<std::string> ask_for_report(const Name& name, const std::string& store,
                                   const fabric::Secret& secret, uint64_t end_ns);

bool is_report_question(Bytes asked);
/// The answer of the engine `self`. An error: the question is malformed, or not sealed.
Result<std::vector<std::byte>> answer_report(Bytes asked, const fabric::Secret& secret,
                                             const Incarnation& self,
                                             const std::function<std::string()>& report);

}  // namespace braid::transfer
