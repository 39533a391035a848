#include "library/error.h"

namespace braid::library {
namespace {

thread_local std::string last_words;

}  // namespace

braid_status report(Error error) {
  if (!error.ok()) last_words = std::move(error.message);
  return error.code;
}

const char* last_error() noexcept { return last_words.c_str(); }

}  // namespace braid::library
