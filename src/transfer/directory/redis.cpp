// A Store on Redis. A record is a key that expires; a script compares and sets at once.
#include <hiredis/hiredis.h>

#include <algorithm>
#include <limits>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/try.h"
#include "transfer/directory/store.h"

namespace braid::transfer {
namespace {

constexpr const char* kPrefix = "braid:segment:";

/// KEYS[1]: the name; ARGV: before, value, milliseconds.
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
  const redisReply* operator->() const { return &**this; }
};

/// At least 1 ms: sockets take 0 as no limit.
timeval left_until(uint64_t end_ns) {
  const uint64_t now_ns = monotonic_ns();
  const uint64_t left_us = std::max<uint64_t>(1000, end_ns > now_ns ? (end_ns - now_ns) / 1000 : 0);
  return {static_cast<time_t>(left_us / 1'000'000), static_cast<suseconds_t>(left_us % 1'000'000)};
}

class Redis final : public Store {
 public:
  explicit Redis(HostAndPort at) : at_(std::move(at)) {}

  Result<std::string> get(const std::string& name, uint64_t end_ns) override {
    BRAID_LET(reply, ask({"GET", kPrefix + name}, end_ns));
    if (reply->type == REDIS_REPLY_NIL) return std::string();
    if (reply->type != REDIS_REPLY_STRING) return what_is_this();
    return std::string(reply->str, reply->len);
  }
  Result<bool> put(const std::string& name, const std::string& before,
                   const std::string& value) override {
    BRAID_LET(reply,
              ask({"EVAL", kPut, "1", kPrefix + name, before, value, std::to_string(kLeaseMs)}));
    if (reply->type != REDIS_REPLY_INTEGER) return what_is_this();
    return reply->integer == 1;
  }
  Status remove(const std::string& name, const std::string& value) override {
    return ask({"EVAL", kRemove, "1", kPrefix + name, value}).status();
  }

 private:
  Status connect(uint64_t end_ns) {
    if (context_ != nullptr && context_->err == 0) return {};
    context_.reset(redisConnectWithTimeout(at_.host.c_str(), at_.port, left_until(end_ns)));
    if (context_ != nullptr && context_->err == 0) return {};
    return give_up(context_ == nullptr ? "out of memory" : context_->errstr);
  }
  Result<Reply> ask(const std::vector<std::string>& words,
                    uint64_t limit_ns = std::numeric_limits<uint64_t>::max()) {
    const uint64_t end_ns = std::min(limit_ns, monotonic_after_ns(kStoreLimitMs * 1000));
    BRAID_TRY(connect(end_ns));
    std::vector<const char*> texts;
    std::vector<size_t> sizes;
    for (const std::string& word : words) {
      texts.push_back(word.data());
      sizes.push_back(word.size());
    }
    redisAppendCommandArgv(context_.get(), static_cast<int>(words.size()), texts.data(),
                           sizes.data());
    int is_sent = 0;
    while (is_sent == 0) {
      redisSetTimeout(context_.get(), left_until(end_ns));
      if (redisBufferWrite(context_.get(), &is_sent) != REDIS_OK) return give_up(context_->errstr);
      if (is_sent == 0 && monotonic_ns() >= end_ns) return give_up("it takes nothing in");
    }
    return read(end_ns);
  }
  /// Reads one reply, piece by piece. It gives up on a server that trickles or sends without end.
  Result<Reply> read(uint64_t end_ns) {
    size_t read_bytes = context_->reader->len;  // all of it: hiredis drops what it has parsed
    for (;;) {
      // A few bytes that announce a list make hiredis allocate gigabytes.
      const redisReader& reader = *context_->reader;
      constexpr std::string_view kAsked = "$:+-_";
      if (reader.ridx < 0 && reader.len > reader.pos &&
          kAsked.find(reader.buf[reader.pos]) == std::string_view::npos)
        return what_is_this();
      void* reply = nullptr;
      if (redisGetReplyFromReader(context_.get(), &reply) != REDIS_OK)
        return give_up(context_->errstr);
      if (reply != nullptr) {
        Reply got{std::unique_ptr<void, FreeReply>(reply)};
        if (got->type != REDIS_REPLY_ERROR) return got;
        return give_up(std::string(got->str, got->len));
      }
      if (read_bytes > kStoreAnswerBytesMax) return give_up("its answer is too long");
      if (monotonic_ns() >= end_ns) return give_up("its answer takes too long");
      redisSetTimeout(context_.get(), left_until(end_ns));
      const size_t before_bytes = reader.len;
      if (redisBufferRead(context_.get()) != REDIS_OK) return give_up(context_->errstr);
      read_bytes += reader.len - before_bytes;
    }
  }
  /// Closes the connection: bytes that still come would be taken for the answer to the next
  /// question.
  Status give_up(const std::string& why) {
    const Status because = store_failure(at_, why);  // `why` may lie in the context
    context_.reset();
    return because;
  }
  Status what_is_this() { return give_up("its answer is of a kind that was not asked for"); }

  const HostAndPort at_;
  std::unique_ptr<redisContext, FreeContext> context_;
};

}  // namespace

std::unique_ptr<Store> open_redis(const HostAndPort& at) { return std::make_unique<Redis>(at); }

}  // namespace braid::transfer
