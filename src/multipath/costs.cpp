#include "multipath/costs.h"

#include <cstdint>

namespace braid::multipath {
namespace {

constexpr CostModel kDefaults{{{
    {
        .native_start_us = 5.4,
        .native_bytes_per_us = 55.5e3,
        .native_entry_us = 0.3,
        .native_small_entry_us = 1.6,
        .native_small_entry_bytes = 16 << 10,
        .kernel_start_us = 20,
        .kernel_launch_us = 4.5,
        .kernel_bytes_per_us = 51.4e3,
        .kernel_ceiling_bytes_per_us = 201.5e3,
        .kernel_cold_us = 75,
        .kernel_cold_ceiling_bytes_per_us = 171.6e3,
        .kernel_segment_us = 0.14,
        .engine_start_us = 14,
        .engine_staged_start_us = 52,
        .engine_issue_us = 6,
        .engine_bytes_per_us = 55.4e3,
        .engine_ceiling_bytes_per_us = 210e3,
        .engine_far_ceiling_bytes_per_us = 80e3,
        .engine_hop_bytes_per_us = 396e3,
    },
    {
        .native_start_us = 18.5,
        .native_bytes_per_us = 55.4e3,
        .native_entry_us = 0.3,
        .native_small_entry_us = 0.2,
        .native_small_entry_bytes = 8 << 10,
        .kernel_start_us = 38,
        .kernel_launch_us = 4.5,
        .kernel_bytes_per_us = 52.6e3,
        .kernel_ceiling_bytes_per_us = 156.4e3,
        .kernel_cold_us = 75,
        .kernel_cold_ceiling_bytes_per_us = 143.9e3,
        .kernel_segment_us = 0.07,
        .engine_start_us = 14,
        .engine_staged_start_us = 52,
        .engine_issue_us = 6,
        .engine_bytes_per_us = 55.4e3,
        .engine_ceiling_bytes_per_us = 161e3,
        .engine_far_ceiling_bytes_per_us = 80e3,
        .engine_hop_bytes_per_us = 396e3,
    },
}}};

constexpr CostRow kRows[] = {
    {"native_start_us", &DirectionCosts::native_start_us, false,
     "1 MiB in the record: 43.2 and 27.5 GB/s"},
    {"native_bytes_per_us", &DirectionCosts::native_bytes_per_us, true, "1 GiB in the record"},
    {"native_entry_us", &DirectionCosts::native_entry_us, false,
     "batches of 64 KB segments: 44.2 and 44.3 GB/s"},
    {"native_small_entry_us", &DirectionCosts::native_small_entry_us, false,
     "batches of 8 KB segments: 4.7 and 23.3 GB/s"},
    {"native_small_entry_bytes", &DirectionCosts::native_small_entry_bytes, false,
     "batches of 16 KB segments are still as slow H2D: 6.3 GB/s, 32 KB: 31.1"},
    {"kernel_start_us", &DirectionCosts::kernel_start_us, false,
     "1 to 8 MiB, every size through braid, in the record"},
    {"kernel_launch_us", &DirectionCosts::kernel_launch_us, false,
     "two driver calls of 2.1 us, and a change of context"},
    {"kernel_bytes_per_us", &DirectionCosts::kernel_bytes_per_us, true,
     "one path by kernel: 51.4 and 52.6 GB/s"},
    {"kernel_ceiling_bytes_per_us", &DirectionCosts::kernel_ceiling_bytes_per_us, true,
     "4 paths, 1 to 2 GiB: 201.5 and 156.4 GB/s"},
    {"kernel_cold_us", &DirectionCosts::kernel_cold_us, false,
     "2 MiB in the record: 105 us first, 36 us later; 20 to over 100 us in others"},
    {"kernel_cold_ceiling_bytes_per_us", &DirectionCosts::kernel_cold_ceiling_bytes_per_us, true,
     "256 MB after 100 ms of rest: 0.85 and 0.92 of what follows at once"},
    {"kernel_segment_us", &DirectionCosts::kernel_segment_us, false,
     "8 KB segments over 4 GPUs: 106.9 and 115.5 GB/s"},
    {"engine_start_us", &DirectionCosts::engine_start_us, false,
     "mapped memory, 2 to 8 MiB over 2 paths: 2xH200-probes"},
    {"engine_staged_start_us", &DirectionCosts::engine_staged_start_us, false,
     "plain memory, 8 to 64 MiB over 2 paths: 2xH200-probes"},
    {"engine_issue_us", &DirectionCosts::engine_issue_us, false,
     "a wait of 1.2 us and two copies of 2.5: 2xH200-probes"},
    {"engine_bytes_per_us", &DirectionCosts::engine_bytes_per_us, true,
     "one GPU, one copy: 55.6 and 55.4 GB/s"},
    {"engine_ceiling_bytes_per_us", &DirectionCosts::engine_ceiling_bytes_per_us, true,
     "1 GiB: 96 and 99 % of the limit, which is 219.4 and 162.8 GB/s at best"},
    {"engine_far_ceiling_bytes_per_us", &DirectionCosts::engine_far_ceiling_bytes_per_us, true,
     "MMA figure 9: of four relays across sockets the second is the last to add bandwidth"},
    {"engine_hop_bytes_per_us", &DirectionCosts::engine_hop_bytes_per_us, true,
     "NVLink peer copy, one direction: 396 GB/s"},
};

}  // namespace

const CostModel& default_costs() { return kDefaults; }

std::span<const CostRow> cost_rows() { return kRows; }

}  // namespace braid::multipath
