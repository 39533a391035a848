// Policies by name.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "serving/policies/policy.h"

namespace braid::serving {

/// Makes a policy by its name. An error lists the names, or names the invalid parameter.
Result<std::unique_ptr<Policy>> make_policy(std::string_view name,
                                            const PolicyParameters& parameters = {});

struct PolicyName {
  const char* name;
  const char* what;  ///< one line, for people
};
const std::vector<PolicyName>& policy_names();

}  // namespace braid::serving
