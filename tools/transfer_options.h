// Options of the commands that open a transfer engine.
#pragma once

#include <CLI/CLI.hpp>

#include <memory>

#include "braid/transfer.h"

namespace braid::tools {

std::shared_ptr<Transfer::Options> add_transfer_options(CLI::App& command);

}  // namespace braid::tools
