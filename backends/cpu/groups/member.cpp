#include "backends/cpu/groups/member.hpp"

#include <gloo/rendezvous/context.h>
#include <gloo/transport/device.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "backends/cpu/groups/collectives.hpp"
#include "backends/cpu/groups/exchange.hpp"
#include "backends/cpu/groups/pipe_signal.hpp"
#include "backends/cpu/groups/world.hpp"

namespace bp::cpu {
namespace {

// What a rank tells another before it closes their connection.
struct Notice {
  char text[496];
  uint64_t status;   // BP_OK if the rank leaves in peace, else why its group has ended.
  uint64_t is_sent;  // 1, where the receiver has 0 until the notice comes.
};

// Returns whether a notice has come. The thread of Gloo may write a notice while this reads it.
__attribute__((no_sanitize("thread"))) bool has_come(const std::byte* notice) {
  const auto* word = reinterpret_cast<const uint64_t*>(notice + offsetof(Notice, is_sent));
  return __atomic_load_n(word, __ATOMIC_ACQUIRE) != 0;
}

// A notice is short, so it leaves at once unless the connection is stuck.
constexpr std::chrono::milliseconds kNoticeTimeout{200};

std::string name_of(uint32_t rank) { return "rank " + std::to_string(rank); }

}  // namespace

// A device of Gloo that knows the connections made by it, so that another thread can close them.
// Gloo waits for each connection up to five times the timeout of the context.
class ListeningDevice final : public gloo::transport::Device {
 public:
  explicit ListeningDevice(std::shared_ptr<gloo::transport::Device> inner)
      : inner_(std::move(inner)) {}

  std::string str() const override { return inner_->str(); }
  const std::string& getPCIBusID() const override { return inner_->getPCIBusID(); }
  std::shared_ptr<gloo::transport::Context> createContext(int rank, int size) override {
    auto context = inner_->createContext(rank, size);
    const std::lock_guard lock(mutex_);
    context_ = context;
    return context;
  }

  // The list of connections must not change any more.
  void close() {
    std::shared_ptr<gloo::transport::Context> context;
    {
      const std::lock_guard lock(mutex_);
      context = context_.lock();
    }
    if (context == nullptr) return;
    for (int rank = 0; rank < context->size; ++rank) {
      if (const auto& pair = context->getPair(rank); pair != nullptr) pair->close();
    }
  }

 private:
  const std::shared_ptr<gloo::transport::Device> inner_;
  std::mutex mutex_;  // It guards the context.
  std::weak_ptr<gloo::transport::Context> context_;
};

Member::Member(World& world, uint32_t rank, bp_device* device)
    : world_(world),
      rank_(rank),
      device_(device),
      store_(world.store(), world.prefix(), rank, world.size()) {}

Member::~Member() { join(); }

void Member::start(std::shared_ptr<gloo::transport::tcp::Device> listener) {
  listener_ = std::move(listener);
  thread_ = std::thread([this] { run(); });
}

void Member::join() {
  if (thread_.joinable()) thread_.join();
}

std::string Member::awaited() const {
  const std::string ready = joining_.awaited();
  return ready.empty() ? store_.awaited() : ready;
}

void Member::end(const Outcome& why) {
  joining_.end(why);
  const bool is_listening = store_.end(why);
  std::shared_ptr<ListeningDevice> connecting;
  {
    const std::lock_guard lock(mutex_);
    connecting = connecting_;
    if (inbox_ != nullptr) inbox_->abortWaitRecv();
    changed_.notify_all();
  }
  if (connecting != nullptr && is_listening) connecting->close();
}

// The process may end after this. A rank whose connections close before its notices have left would
// be called gone by the others.
void Member::leave() {
  std::unique_lock lock(mutex_);
  is_destroyed_ = true;
  if (inbox_ != nullptr) inbox_->abortWaitRecv();
  changed_.wait(lock, [this] { return has_said_ || submitted_ > 0; });
}

void Member::count_submitted(int calls) {
  const std::lock_guard lock(mutex_);
  submitted_ += calls;
  if (is_destroyed_ && submitted_ == 0 && inbox_ != nullptr) inbox_->abortWaitRecv();
}

void Member::count_running(int calls) {
  const std::lock_guard lock(mutex_);
  running_ += calls;
  changed_.notify_all();
}

std::set<uint32_t> Member::departed() const {
  const std::lock_guard lock(mutex_);
  return departed_;
}

bool Member::is_leaving() const {
  const std::lock_guard lock(mutex_);
  return is_destroyed_ && submitted_ == 0;
}

void Member::run() {
  const BlockedPipeSignal blocked;
  const Outcome made = outcome_of([&] {
    connect();
    share_memory();
    meet();
  });
  if (made.status != BP_OK) world_.end(made);
  joined_.complete(made);
  if (made.status == BP_OK) watch();
  if (mesh_ != nullptr) say(world_.status());
  {
    const std::lock_guard lock(mutex_);
    has_said_ = true;
    changed_.notify_all();
  }
  close();
  is_over_ = true;
}

// Connects to all other ranks.
void Member::connect() {
  const auto watched = std::make_shared<ListeningDevice>(listener_);
  {
    const std::lock_guard lock(mutex_);
    connecting_ = watched;
  }
  const auto mesh = std::make_shared<gloo::rendezvous::Context>(static_cast<int>(rank_),
                                                                static_cast<int>(world_.size()));
  mesh->setTimeout(kForever / 5);
  const Outcome outcome = outcome_of([&] {
    std::shared_ptr<gloo::transport::Device> device = watched;
    try {
      mesh->connectFullMesh(store_, device);
    } catch (const StatusError&) {
      throw;
    } catch (const std::exception& e) {
      refuse(BP_ABORTED,
             name_of(rank_) + " could not connect to" + store_.awaited() + ": " + e.what());
    }
  });
  {
    const std::lock_guard lock(mutex_);
    connecting_ = nullptr;
  }
  if (const Outcome ended = store_.ended(); ended.status != BP_OK) {
    refuse(ended.status, ended.text);
  }
  if (outcome.status != BP_OK) refuse(outcome.status, outcome.text);
  mesh_ = mesh;
}

void Member::share_memory() {
  lanes_ = shm::share_lanes({.rank = rank_,
                             .world_size = world_.size(),
                             .is_wanted = world_.plan().options.shares_memory,
                             .put =
                                 [&](const std::string& key, const std::string& value) {
                                   store_.set(key, {value.begin(), value.end()});
                                 },
                             .get =
                                 [&](const std::string& key, uint32_t /*rank*/) {
                                   const std::vector<char> value = store_.get(key);
                                   return std::string(value.begin(), value.end());
                                 }});
}

// Waits until all others have connected too, so that no rank has a group which another one lacks.
void Member::meet() {
  ask_for_notices();
  const auto context = endable_context(mesh_, joining_);
  exchange(*context, slot_of(Topic::kMeet, 0), std::vector<std::byte>(world_.size()), 1);
}

void Member::ask_for_notices() {
  notices_.resize(world_.size() * sizeof(Notice));
  auto inbox = mesh_->createUnboundBuffer(notices_.data(), notices_.size());
  for (uint32_t peer = 0; peer < world_.size(); ++peer) {
    if (peer == rank_) continue;
    try {
      inbox->recv(static_cast<int>(peer), slot_of(Topic::kNotice, 0), peer * sizeof(Notice),
                  sizeof(Notice));
    } catch (const std::exception& e) {
      refuse(BP_ABORTED, name_of(rank_) + " lost its connection to " + name_of(peer) +
                             " while the group was made: " + e.what());
    }
  }
  const std::lock_guard lock(mutex_);
  inbox_ = std::move(inbox);
}

// Waits for notices until the group has ended or the rank leaves.
void Member::watch() {
  std::string closed;
  while (!is_leaving() && world_.status().status == BP_OK) {
    try {
      if (inbox_->waitRecv(nullptr, kForever)) read_notice();
    } catch (const std::exception& e) {
      // The connection of a rank is closed. Gloo throws also if other ranks have sent notices
      // meanwhile, and gives their notices to the next waits. So a second failure decides.
      if (!std::exchange(closed, e.what()).empty()) return world_.end({BP_ABORTED, lost(closed)});
    }
  }
}

// Reads one notice. If several have come, Gloo gives the rank of the last one for each of them, so
// the notices themselves say whose they are.
void Member::read_notice() {
  uint32_t from = 0;
  while (departed_.contains(from) || !has_come(notices_.data() + from * sizeof(Notice))) {
    if (++from == world_.size()) return;
  }
  Notice notice{};
  std::memcpy(&notice, notices_.data() + from * sizeof(notice), sizeof(notice));
  {
    const std::lock_guard lock(mutex_);
    departed_.insert(from);
  }
  if (notice.status == BP_OK) return;
  notice.text[sizeof(notice.text) - 1] = '\0';
  world_.end({static_cast<bp_status>(notice.status), notice.text});
}

// Names the ranks whose connections were closed without a notice. Gloo refuses to post there.
std::string Member::lost(const std::string& reason) {
  std::string ranks;
  std::byte nothing{};
  const auto probe = mesh_->createUnboundBuffer(&nothing, 1);
  for (uint32_t peer = 0; peer < world_.size(); ++peer) {
    if (peer == rank_ || departed_.contains(peer)) continue;
    try {
      probe->recv(static_cast<int>(peer), slot_of(Topic::kProbe, 0));
    } catch (const std::exception&) {
      ranks += (ranks.empty() ? "" : ", ") + name_of(peer);
    }
  }
  if (ranks.empty()) return "a connection of " + name_of(rank_) + " was closed: " + reason;
  return ranks + " is gone: its connection to " + name_of(rank_) + " was closed";
}

// Tells the other ranks how the group has ended, or that this rank leaves. Those of this process
// know how the group has ended.
void Member::say(const Outcome& end) {
  Notice notice{};
  notice.status = static_cast<uint64_t>(end.status);
  notice.is_sent = 1;
  end.text.copy(notice.text, sizeof(notice.text) - 1);
  const auto outbox = mesh_->createUnboundBuffer(&notice, sizeof(notice));
  int sent = 0;
  for (uint32_t peer = 0; peer < world_.size(); ++peer) {
    const bool knows = departed_.contains(peer) || (end.status != BP_OK && world_.is_local(peer));
    if (peer == rank_ || knows) continue;
    try {
      outbox->send(static_cast<int>(peer), slot_of(Topic::kNotice, 0));
      ++sent;
    } catch (const std::exception&) {  // The connection is closed, so the peer knows.
    }
  }
  try {
    for (; sent > 0; --sent) outbox->waitSend(kNoticeTimeout);
  } catch (const std::exception&) {  // The peers will see that the connection is closed.
  }
}

// Ends the connections, which calls that run still use.
void Member::close() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return running_ == 0; });
  inbox_.reset();
  auto mesh = std::exchange(mesh_, nullptr);
  lock.unlock();
  const auto listener = std::exchange(listener_, nullptr);
  const QuickLoop quick(listener);
  mesh.reset();
}

}  // namespace bp::cpu
