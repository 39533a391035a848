// braid's errors inside are those it shows outside: Status and Result, std only.
#pragma once

#include "braid/status.h"
