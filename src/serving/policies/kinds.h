// The policies that make_policy can make.
#pragma once

#include <memory>

#include "serving/policies/policy.h"

namespace braid::serving {

std::unique_ptr<Policy> make_paper(const PolicyParameters& parameters);
std::unique_ptr<Policy> make_braid(const PolicyParameters& parameters);

std::unique_ptr<Policy> make_fcfs_recompute();
std::unique_ptr<Policy> make_swapped_first();
std::unique_ptr<Policy> make_waiting_first();
std::unique_ptr<Policy> make_sjf_oracle();

std::unique_ptr<Policy> make_edf();
std::unique_ptr<Policy> make_slo_classes();

std::unique_ptr<Policy> make_lightllm_like();
std::unique_ptr<Policy> make_ltr_like();
std::unique_ptr<Policy> make_neo_like();

}  // namespace braid::serving
