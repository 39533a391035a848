// Braid uses its public error types inside too: Status and Result, std only.
#pragma once

#include "braid/status.h"
