// Options of the commands that open a transfer engine.
#pragma once

#include <CLI/CLI.hpp>

#include <memory>

#include "braid/transfer.h"

namespace braid::tools {

std::shared_ptr<Transfer::Options> add_transfer_options(CLI::App& command);

/// For a further engine beside one with these options: without a name, and at any port.
Transfer::Options beside(const Transfer::Options& options);

}  // namespace braid::tools
