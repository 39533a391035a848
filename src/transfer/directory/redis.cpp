// A Store on Redis. A record is a key that expires; a script compares and sets at once.
#include <hiredis/hiredis.h>

#include <algorithm>
#include <limits>
#include <string_view>
#include <vector>

#include "base/try.h"
#include "transfer/directory/socket.h"
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

/// KEYS[1]: the prefix; ARGV: where the page begins. Lines: where the next page begins, then names
/// and values in turn. A record with a line break is not one of ours.
constexpr const char* kList =
    "local page = redis.call('scan', ARGV[1], 'match', KEYS[1] .. '*', 'count', 1000) "
    "local lines = {page[1]} "
    "for _, key in ipairs(page[2]) do "
    "  local value = redis.pcall('get', key) "
    "  if type(value) == 'table' and value.err and not string.find(value.err, 'WRONGTYPE') then "
    "    return value end "
    "  if type(value) == 'string' and not string.find(key .. value, '\\n') then "
    "    table.insert(lines, string.sub(key, #KEYS[1] + 1)) table.insert(lines, value) end end "
    "return table.concat(lines, '\\n')";

/// The socket is the store's.
struct FreeContext {
  void operator()(redisContext* context) const { redisFreeKeepFd(context); }
};
struct FreeReply {
  void operator()(void* reply) const { freeReplyObject(reply); }
};
struct Reply {
  std::unique_ptr<void, FreeReply> held;
  const redisReply& operator*() const { return *static_cast<const redisReply*>(held.get()); }
  const redisReply* operator->() const { return &**this; }
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

class Redis final : public Store {
 public:
  Redis(StoreUrl url, Resolver resolver)
      : url_(std::move(url)), host_(url_.at, std::move(resolver)) {}

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
  Result<Records> list(uint64_t end_ns) override {
    Records all;
    size_t all_bytes = 0;
    std::string from = "0";
    do {
      BRAID_LET(reply, ask({"EVAL", kList, "1", kPrefix, from}, end_ns, kPageBytesMax));
      if (reply->type != REDIS_REPLY_STRING) return what_is_this();
      const std::vector<std::string> lines = lines_of(std::string(reply->str, reply->len));
      if (lines.size() % 2 == 0) return what_is_this();
      from = lines.front();
      Records page;
      for (size_t i = 1; i < lines.size(); i += 2) page[lines[i]] = lines[i + 1];
      if (!add_page(std::move(page), all, all_bytes)) return give_up("its list is too long");
    } while (from != "0");
    return all;
  }

 private:
  Status connect(WaitEnd end) {
    if (context_ != nullptr && context_->err == 0) return {};
    const Result<AddressList> addresses = host_.find(end);
    if (!addresses.ok()) return give_up(addresses.status().message());
    Result<Descriptor> connected = connect_to(url_.at, addresses.value(), end);
    if (!connected.ok()) return give_up(connected.status().message());
    socket_ = std::move(connected).value();
    context_.reset(redisConnectFd(socket_.get()));
    if (context_ == nullptr || context_->err != 0)
      return give_up(context_ == nullptr ? "out of memory" : context_->errstr);
    context_->flags &= ~REDIS_BLOCK;
    return url_.password.empty() ? Status() : authenticate(end);
  }
  Status authenticate(WaitEnd end) {
    std::vector<std::string> words = {"AUTH"};
    if (!url_.user.empty()) words.push_back(url_.user);
    words.push_back(url_.password);
    BRAID_LET(reply, exchange(words, end, kStoreAnswerBytesMax));
    if (reply->type == REDIS_REPLY_STATUS) return {};
    if (reply->type != REDIS_REPLY_ERROR) return what_is_this();
    return close_after(not_authenticated({reply->str, reply->len}));
  }
  /// Says none of the server's words: one that does not know AUTH repeats the password in them.
  Status not_authenticated(std::string_view said) const {
    if (said.starts_with("WRONGPASS") || said.starts_with("ERR invalid password"))
      return store_refuses_password(url_, "user or password are wrong, or the user is disabled");
    if (said.starts_with("ERR AUTH") || said.starts_with("ERR Client sent AUTH"))
      return store_refuses_password(url_, "none is set there for the default user");
    if (said.starts_with("DENIED")) return store_denies(url_, "it is in protected mode");
    if (said.starts_with("ERR max number of clients"))
      return store_failure(url_, "it has too many clients");
    return store_refuses_password(url_, "it does not know this form of AUTH");
  }
  Result<Reply> ask(const std::vector<std::string>& words,
                    uint64_t end_ns = std::numeric_limits<uint64_t>::max(),
                    size_t bytes_max = kStoreAnswerBytesMax) {
    const WaitEnd end = end_of_call(end_ns);
    BRAID_TRY(connect(end));
    BRAID_LET(reply, exchange(words, end, bytes_max));
    if (reply->type != REDIS_REPLY_ERROR) return std::move(reply);
    const std::string said(reply->str, reply->len);
    if (said.starts_with("NOAUTH")) return close_after(store_wants_password(url_));
    if (is_denial(said)) return close_after(store_denies(url_, said));
    return give_up(said);
  }
  /// A command within a script is denied in words of its own, which versions have changed.
  static bool is_denial(std::string_view said) {
    return said.starts_with("DENIED") || said.find("NOPERM") != std::string_view::npos ||
           said.find("user executing the script can't") != std::string_view::npos;
  }
  /// The reply may be an error.
  Result<Reply> exchange(const std::vector<std::string>& words, WaitEnd end, size_t bytes_max) {
    std::vector<const char*> texts;
    std::vector<size_t> sizes;
    for (const std::string& word : words) {
      texts.push_back(word.data());
      sizes.push_back(word.size());
    }
    redisAppendCommandArgv(context_.get(), static_cast<int>(words.size()), texts.data(),
                           sizes.data());
    for (int is_sent = 0; is_sent == 0;) {
      if (!wait_for(socket_.get(), Awaited::kWriting, end)) return give_up("it takes nothing in");
      if (redisBufferWrite(context_.get(), &is_sent) != REDIS_OK) return give_up(context_->errstr);
    }
    return read(end, bytes_max);
  }
  /// Reads one reply, piece by piece. It gives up on a server that trickles or sends without end.
  Result<Reply> read(WaitEnd end, size_t bytes_max) {
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
      if (reply != nullptr) return Reply{std::unique_ptr<void, FreeReply>(reply)};
      if (read_bytes > bytes_max) return give_up("its answer is too long");
      if (!wait_for(socket_.get(), Awaited::kReading, end))
        return give_up("its answer takes too long");
      const size_t before_bytes = reader.len;
      if (redisBufferRead(context_.get()) != REDIS_OK) return give_up(context_->errstr);
      read_bytes += reader.len - before_bytes;
    }
  }
  /// Closes the connection: bytes that still come would be taken for the answer to the next
  /// question.
  Status close_after(Status because) {
    context_.reset();
    socket_ = {};
    return because;
  }
  Status give_up(const std::string& why) { return close_after(store_failure(url_, why)); }
  Status what_is_this() { return give_up("its answer is of a kind that was not asked for"); }

  const StoreUrl url_;
  HostLookUp host_;
  Descriptor socket_;
  std::unique_ptr<redisContext, FreeContext> context_;
};

}  // namespace

std::unique_ptr<Store> open_redis(StoreUrl url, Resolver resolver) {
  return std::make_unique<Redis>(std::move(url), std::move(resolver));
}

}  // namespace braid::transfer
