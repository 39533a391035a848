// A Store on Redis.
#include <hiredis/hiredis.h>

#include <string_view>
#include <vector>

#include "base/try.h"
#include "transfer/directory/names.h"
#include "transfer/directory/store.h"

namespace braid::transfer {
namespace {

constexpr std::string_view kRedis = "redis://";
constexpr const char* kPrefix = "braid:segment:";

/// Compares and sets at once. KEYS[1]: the name; ARGV: before, value, milliseconds.
constexpr const char* kPut =
    "local now = redis.call('get', KEYS[1]) or '' "
    "if now ~= ARGV[1] then return 0 end "
    "redis.call('set', KEYS[1], ARGV[2], 'px', ARGV[3]) return 1";
constexpr const char* kRemove =
    "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) end return 1";

struct FreeContext {
  void operator()(redisContext* context) const { redisFree(context); }
};
struct FreeReply {
  void operator()(void* reply) const { freeReplyObject(reply); }
};
struct Reply {
  std::unique_ptr<void, FreeReply> held;
  const redisReply& operator*() const { return *static_cast<const redisReply*>(held.get()); }
};

class Redis final : public Store {
 public:
  explicit Redis(HostAndPort at) : at_(std::move(at)) {}

  Result<std::string> get(const std::string& name) override {
    BRAID_LET(reply, ask({"GET", kPrefix + name}));
    const redisReply& got = *reply;
    return got.type == REDIS_REPLY_STRING ? std::string(got.str, got.len) : std::string();
  }
  Result<bool> put(const std::string& name, const std::string& before,
                   const std::string& value) override {
    BRAID_LET(reply,
              ask({"EVAL", kPut, "1", kPrefix + name, before, value, std::to_string(kLeaseMs)}));
    return (*reply).type == REDIS_REPLY_INTEGER && (*reply).integer == 1;
  }
  Status remove(const std::string& name, const std::string& value) override {
    return ask({"EVAL", kRemove, "1", kPrefix + name, value}).status();
  }

 private:
  Status connect() {
    if (context_ != nullptr && context_->err == 0) return {};
    const timeval limit{kStoreLimitMs / 1000, kStoreLimitMs % 1000 * 1000};
    context_.reset(redisConnectWithTimeout(at_.host.c_str(), at_.port, limit));
    if (context_ == nullptr || context_->err != 0)
      return failure(context_ == nullptr ? "out of memory" : context_->errstr);
    redisSetTimeout(context_.get(), limit);
    return {};
  }
  Result<Reply> ask(const std::vector<std::string>& words) {
    BRAID_TRY(connect());
    std::vector<const char*> texts;
    std::vector<size_t> sizes;
    for (const std::string& word : words) {
      texts.push_back(word.data());
      sizes.push_back(word.size());
    }
    Reply reply{std::unique_ptr<void, FreeReply>(redisCommandArgv(
        context_.get(), static_cast<int>(words.size()), texts.data(), sizes.data()))};
    if (reply.held == nullptr) return failure(context_->errstr);
    const redisReply& got = *reply;
    if (got.type == REDIS_REPLY_ERROR) return failure(std::string(got.str, got.len));
    return reply;
  }
  Status failure(const std::string& why) const {
    return Status::error(
        "the store at " + at_.host + ":" + std::to_string(at_.port) + " does not answer: " + why,
        "Name engines as braid://host:port meanwhile");
  }

  const HostAndPort at_;
  std::unique_ptr<redisContext, FreeContext> context_;
};

}  // namespace

Result<std::unique_ptr<Store>> open_store(const std::string& url) {
  if (!url.starts_with(kRedis))
    return Status::error("braid knows no store '" + url + "'", "Write redis://host:port");
  BRAID_LET(at, parse_host_and_port(url.substr(kRedis.size())));
  return std::unique_ptr<Store>(std::make_unique<Redis>(at));
}

}  // namespace braid::transfer
