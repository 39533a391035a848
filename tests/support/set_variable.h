// An environment variable of this process, and of those that it starts meanwhile, for a scope.
#pragma once

#include <cstdlib>
#include <string>

namespace braid::test {

class SetVariable {
 public:
  SetVariable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~SetVariable() { unsetenv(name_.c_str()); }
  SetVariable(const SetVariable&) = delete;
  SetVariable& operator=(const SetVariable&) = delete;

 private:
  std::string name_;
};

}  // namespace braid::test
