#include "transfer/library/service.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <utility>

#include "base/try.h"
#include "fabric/host/processes.h"
#include "fabric/library/placement.h"
#include "fabric/library/rail_choice.h"
#include "fabric/thread.h"
#include "host/addresses.h"
#include "transfer/directory/host_look_up.h"
#include "transfer/directory/resolve.h"
#include "transfer/failure.h"
#include "transfer/library/open_engine.h"

namespace braid::transfer {
namespace {

constexpr uint64_t kSettleUs = 50'000;  // how long the other ways have once the first one works
/// How long an owner has to hand out the memory that it shares. The rails carry slices of the rest.
constexpr uint64_t kMappingUs = 1'000'000;
/// The time between looks for questions: each look costs a system call.
constexpr uint64_t kDirectoryNs = 200'000;
constexpr size_t kNotificationsMax = 4096;
/// How long the store has when an engine is closed. The engine's last notifications have the same.
constexpr uint64_t kGiveBackUs = 1'000'000;

enum class LeadsTo : uint8_t { kUnknown, kThisHost, kAnyHost };

LeadsTo leads_to(const HostAndPort& at) {
  const auto found = HostLookUp(at).find(monotonic_after_ns(kStoreLimitMs * 1000));
  if (!found.ok()) return LeadsTo::kUnknown;
  for (const addrinfo* each = found.value().get(); each != nullptr; each = each->ai_next)
    if (!is_loopback(number_of(*each))) return LeadsTo::kAnyHost;
  return LeadsTo::kThisHost;
}

/// Other hosts would look for an engine at loopback among their own processes, find that nobody
/// listens there, and give its name to somebody else.
Status check_leads_here(const std::string& host_in_name, const std::string& store) {
  BRAID_LET(url, parse_store_url(store));
  if (leads_to({host_in_name, 0}) != LeadsTo::kThisHost || leads_to(url.at) != LeadsTo::kAnyHost)
    return {};
  return Status::error(
      "hosts that find this engine's name in the store cannot reach it: " + host_in_name +
          " is an address within each host",
      "Name an address or a NIC for its rails (--address, --nics, " +
          std::string(fabric::kNicsVariable) + "), or where it listens (--listen)");
}

/// The engine answers processes that ask for it by name.
Result<std::unique_ptr<DirectoryServer>> open_directory(const OpenOptions& options,
                                                        const OpenedRails& opened,
                                                        const Engine& engine) {
  DirectoryServer::Asked asked;
  asked.incarnation = engine.incarnation();
  asked.describe = [&engine] { return engine.describe(); };
  asked.report = [&engine](const DirectoryStatistics& questions) {
    const std::string name = to_hex(engine.incarnation());
    return write_report(StatsFormat::kJson, report_of(engine, questions, name));
  };
  asked.admits = opened.trust.admits;
  return DirectoryServer::open(opened.listen, options.name, opened.trust.secret, std::move(asked));
}

/// Null: no process of this host maps what is allocated here, so the rails carry it all.
std::unique_ptr<SharingServer> share_memory(const fabric::Secret& secret, Engine& engine) {
  if (engine.sharing() == nullptr) return nullptr;
  auto server = SharingServer::open(engine.incarnation(), secret, *engine.sharing());
  return server.ok() ? std::move(server).value() : nullptr;
}

}  // namespace

Result<std::unique_ptr<Service>> Service::open(const OpenOptions& options,
                                               const topology::Machine& machine,
                                               const std::vector<topology::Nic>& nics) {
  Places places(machine);
  RailHost host{machine, nics, places};
  BRAID_LET(opened, open_rails(options, host));
  const int numa_node = options.is_pinned ? opened.choice.numa_node : -1;
  const fabric::OnNode here(machine, numa_node);
  BRAID_LET(engine, open_engine(options, opened, std::move(places)));
  BRAID_LET(directory, open_directory(options, opened, *engine));
  std::unique_ptr<SharingServer> sharing = share_memory(opened.trust.secret, *engine);
  std::unique_ptr<Service> service(new Service(  // owner: service
      opened.trust.secret, std::move(engine), std::move(directory), std::move(sharing)));
  service->host_in_name_ = opened.host_in_name;
  service->numa_node_ = numa_node;
  const char* variable = std::getenv(kStoreVariable);
  service->store_ = options.store.empty() && variable != nullptr ? variable : options.store;
  if (!options.name.empty() && !service->store_.empty())
    BRAID_TRY(service->take_name(options.name));
  return service;
}

Service::Service(fabric::Secret secret, std::unique_ptr<Engine> engine,
                 std::unique_ptr<DirectoryServer> directory, std::unique_ptr<SharingServer> sharing)
    : secret_(std::move(secret)),
      engine_(std::move(engine)),
      directory_(std::move(directory)),
      sharing_(std::move(sharing)),
      origin_(fabric::host_processes()->self()),
      descriptors_(engine_->wait_descriptors()) {
  descriptors_.push_back(directory_->descriptor());
  if (sharing_ != nullptr) descriptors_.push_back(sharing_->descriptor());
  thread_ = fabric::start_thread([this] { work(); });
}

/// The name is given back while the engine says its last words: its lease ends after that.
Service::~Service() {
  if (lease_ != nullptr) lease_->give_back_by(monotonic_after_ns(kGiveBackUs));
  mutex_.run([this] {
    sleep_.wake();
    drivers_.end();
  });
  thread_.join();
}

/// Takes the name in the store, if need be from an engine that has ended.
Status Service::take_name(const std::string& name) {
  BRAID_TRY(check_leads_here(host_in_name_, store_));
  BRAID_LET(store, open_store(store_));
  const auto is_alive = [this](const std::string& value) {
    const Result<Name> other = parse_name(value);
    if (!other.ok() || other.value().is_bare()) return false;  // no engine has written it
    // An engine that is stopped, beset by strangers or out of reach lives while its record lasts.
    return !has_ended(other.value(), secret_, monotonic_after_ns(1'000'000));
  };
  BRAID_LET(lease, Lease::take(std::move(store), name, this->name(), is_alive));
  lease_ = std::move(lease);
  return {};
}

std::string Service::name() const {
  return write_name({host_in_name_, directory_->at().port}, engine_->incarnation());
}

TransferReport Service::report() {
  const std::string name = this->name();
  return with([&](Engine& engine) { return report_of(engine, directory_->statistics(), name); });
}

Result<uint64_t> Service::open_segment(const std::string& text, uint64_t limit_us) {
  const uint64_t end_ns = monotonic_after_ns(limit_us);
  const auto left_us = [&] {
    const uint64_t now = monotonic_ns();
    return now < end_ns ? (end_ns - now) / 1000 : 0;
  };
  BRAID_LET(name, parse_name(text));
  BRAID_LET(owner, resolve(name, store_, secret_, end_ns));
  MappedMemory mapped;
  if (shares() && owner.incarnation != engine_->incarnation())
    mapped =
        map_memory_of(owner, origin_, secret_, std::min(end_ns, monotonic_after_ns(kMappingUs)));
  BRAID_LET(segment,
            with([&](Engine& engine) { return engine.open_segment(owner, std::move(mapped)); }));
  (void)wait(left_us(), [&](Engine& engine) {
    return engine.ways_up(segment).first > 0 || engine.wrong_with(segment) != Cause::kNone;
  });
  (void)wait(std::min(kSettleUs, left_us()), [&](Engine& engine) {
    const auto [up, all] = engine.ways_up(segment);
    return up == all || up == 0;
  });
  const size_t up = with([&](Engine& engine) {
    engine.settle(segment);
    return engine.ways_up(segment).first;
  });
  if (up > 0) return segment;
  const bool has_descriptors = Descriptor(dup(events_.get())).get() >= 0;
  const Cause wrong = with([&](Engine& engine) { return engine.wrong_with(segment); });
  with([&](Engine& engine) { (void)engine.close_segment(segment); });
  if (!has_descriptors) return no_more_descriptors("segment '" + text + "'");
  if (wrong == Cause::kOtherVersion)
    return failure(
        wrong, "segment '" + text + "': no rail of it speaks a version that the rails here speak",
        "Upgrade the older side");
  if (wrong != Cause::kNone)
    return failure(Cause::kPeerLost,
                   "segment '" + text + "': no rail of it has answered, and it was given up",
                   "`braid segments " + text + "` shows its rails");
  return failure(Cause::kDeadline,
                 "segment '" + text + "': no rail of it has answered within the time limit",
                 "`braid segments " + text + "` shows its rails");
}

Result<uint64_t> Service::open_file(uint64_t segment, const std::string& path, Rights wanted,
                                    uint64_t limit_us) {
  BRAID_LET(token,
            with([&](Engine& engine) { return engine.ask_for_file(segment, path, wanted); }));
  std::optional<FileOpened> opened;
  (void)wait(limit_us, [&](Engine& engine) {
    if (!opened) opened = engine.take_file(token);
    return opened.has_value();
  });
  if (!opened) with([&](Engine& engine) { engine.forget_file(token); });
  if (!opened)
    return failure(Cause::kDeadline,
                   "file '" + path + "': the owner has not answered within the time limit");
  if (opened->cause != Cause::kNone)
    return failure(opened->cause, "file '" + path + "': " + cause_name(opened->cause));
  return with([&](Engine& engine) { return engine.add_file(segment, *opened); });
}

Status Service::remove_buffer(uint64_t buffer) {
  return with_here([&](Engine& engine) -> Status {
    const Buffer* const known = engine.buffers().find(buffer);
    const auto lane = known == nullptr ? nullptr : known->lane;
    BRAID_TRY(engine.remove_buffer(buffer));
    if (lane != nullptr) lanes_[buffer] = lane->end();
    return {};
  });
}

Status Service::wait_until_free(uint64_t buffer, uint64_t limit_us) {
  const uint64_t end_ns = monotonic_after_ns(limit_us);
  if (!wait(limit_us, [&](Engine& engine) { return !engine.is_in_use(buffer); }))
    return Status::error("a peer that does not answer may still write into the memory",
                         "Keep it until the peer is given up");
  const auto lane = with([&](Engine&) {
    const auto found = lanes_.find(buffer);
    return found == lanes_.end() ? nullptr : found->second;
  });
  if (lane == nullptr) return {};
  if (!lane->wait_until(end_ns))
    return Status::error("the driver still holds up what is left in the memory's context",
                         "Keep the context until its streams have ended");
  with([&](Engine&) { lanes_.erase(buffer); });
  return {};
}

bool Service::wait(uint64_t limit_us, const std::function<bool(Engine&)>& is_so) {
  return fabric::wait_until(
      mutex_, drivers_, monotonic_after_ns(limit_us), [&] { return is_so(*engine_); },
      [this](uint64_t now_ns) { return step(now_ns); }, [this] { follow_up(); });
}

// ---- Batches and events ----

Result<bool> Service::wait_for_batch(uint64_t batch, uint64_t limit_us) {
  if (ended_.contains(batch)) return true;
  Status known;
  const bool is_over = wait(limit_us, [&](Engine& engine) {
    if (ended_.contains(batch)) return true;
    known = engine.status(batch).status();
    return !known.ok();
  });
  BRAID_TRY(known);
  return is_over;
}

Result<std::vector<RequestStatus>> Service::outcomes(uint64_t batch) {
  EndedBatches::Outcomes all;
  const auto read = [&](const EndedBatches::Outcomes& its) { all = its; };
  if (ended_.read(batch, read)) return all;
  return with([&](Engine& engine) -> Result<EndedBatches::Outcomes> {
    if (ended_.read(batch, read)) return all;
    return engine.outcomes(batch);
  });
}

Status Service::cancel(uint64_t batch) {
  return with([&](Engine& engine) -> Status {
    if (ended_.contains(batch)) return {};
    return engine.cancel(batch);
  });
}

Status Service::forget(uint64_t batch) {
  if (ended_.forget(batch)) return {};
  return with([&](Engine& engine) -> Status {
    if (ended_.forget(batch)) return {};
    return engine.forget(batch);
  });
}

int Service::event_descriptor() {
  ended_.begin_to_tell();
  return events_.get();
}

std::optional<Notified> Service::next_notification(uint64_t limit_us) {
  std::optional<Notified> first;
  (void)wait(limit_us, [&](Engine&) {
    if (!first && !notifications_.empty()) first = take_notification();
    return first.has_value();
  });
  return first;
}

Notified Service::take_notification() {
  Notified first = std::move(notifications_.front());
  notifications_.pop_front();
  engine_->set_notification_room(kNotificationsMax - notifications_.size());
  deliver();
  events_.set(EventDescriptor::Source::kNotifications, !notifications_.empty());
  return first;
}

// ---- The thread ----

void Service::work() {
  fabric::look_until_end(
      mutex_, drivers_, [this](uint64_t now_ns) { return step(now_ns); },
      [this](fabric::Lock& lock) { rest(lock); });
}

void Service::rest(fabric::Lock& lock) {
  constexpr uint64_t kQuietNs = std::chrono::nanoseconds(fabric::kQuiet).count();
  const uint64_t now_ns = monotonic_ns();
  // Work with descriptors, such as GPU copies, wakes the thread sooner.
  const uint64_t until_ns = engine_->has_to_be_asked()
                                ? now_ns + kQuietNs
                                : std::min(engine_->next_deadline_ns(), next_question_ns());
  if (engine_->arm()) sleep_.until(until_ns, now_ns, descriptors_, lock);
}

// ---- Under the mutex ----

/// Follows a call, which may have left work to do.
void Service::follow_up() {
  deliver();
  drivers_.tell();
  if (!engine_->is_idle()) sleep_.wake();
  sleep_.wake_before(engine_->next_deadline_ns());
  if (std::exchange(drivers_.has_driver_left, false))
    sleep_.rearm([this] { return engine_->arm(); });
}

uint64_t Service::next_question_ns() const {
  const uint64_t next_ns = directory_->next_deadline_ns();
  return sharing_ == nullptr ? next_ns : std::min(next_ns, sharing_->next_deadline_ns());
}

bool Service::look_for_questions(uint64_t now_ns) {
  if (now_ns < look_at_directory_ns_) return false;
  look_at_directory_ns_ = now_ns + kDirectoryNs;
  const bool is_asked = directory_->step(now_ns);
  return (sharing_ != nullptr && sharing_->step(now_ns)) || is_asked;
}

bool Service::step(uint64_t now_ns) {
  const bool is_asked = look_for_questions(now_ns);
  const bool is_busy = engine_->step(now_ns);
  deliver();
  return is_busy || is_asked;
}

void Service::deliver() {
  for (const uint64_t batch : engine_->take_ended()) ended_.add(batch, engine_->take(batch));
  std::vector<Notified> notified = engine_->take_notifications();
  if (!notified.empty()) {
    for (Notified& each : notified) notifications_.push_back(std::move(each));
    const size_t held = std::min(notifications_.size(), kNotificationsMax);
    engine_->set_notification_room(kNotificationsMax - held);
    events_.set(EventDescriptor::Source::kNotifications, true);
  }
}

}  // namespace braid::transfer
