#include "backends/cpu/groups/waits.hpp"

#include <gloo/transport/context.h>

#include <exception>
#include <utility>

#include "backplane/shell/entry.hpp"

namespace bp::cpu {
namespace {

// Returns the slot of messages of this size, by the finalizer of SplitMix64 (Steele, Lea, Flood:
// Fast splittable pseudorandom number generators, 2014).
uint64_t slot_by_size(uint64_t slot, size_t size_bytes) {
  uint64_t x = size_bytes + 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return slot ^ x ^ (x >> 31);
}

}  // namespace

// A buffer of Gloo whose waits end with those of its call.
class EndableBuffer final : public gloo::transport::UnboundBuffer {
 public:
  EndableBuffer(std::unique_ptr<UnboundBuffer> inner, Waits& waits,
                const std::function<void()>& before_wait)
      : UnboundBuffer(inner->ptr, inner->size),
        inner_(std::move(inner)),
        waits_(waits),
        before_wait_(before_wait) {
    waits_.add(inner_.get());
  }
  ~EndableBuffer() override { waits_.remove(inner_.get()); }

  bool waitRecv(int* rank, std::chrono::milliseconds) override {
    int from = -1;
    wait([&] { return inner_->waitRecv(&from, kForever); });
    waits_.expect(from, -1);
    if (rank != nullptr) *rank = from;
    return true;
  }
  bool waitSend(int* rank, std::chrono::milliseconds) override {
    wait([&] { return inner_->waitSend(rank, kForever); });
    return true;
  }
  void abortWaitRecv() override { inner_->abortWaitRecv(); }
  void abortWaitSend() override { inner_->abortWaitSend(); }

  void send(int rank, uint64_t slot, size_t offset, size_t size_bytes) override {
    post([&] { inner_->send(rank, slot_of(slot, offset, size_bytes), offset, size_bytes); });
  }
  void recv(int rank, uint64_t slot, size_t offset, size_t size_bytes) override {
    waits_.expect(rank, 1);
    post([&] { inner_->recv(rank, slot_of(slot, offset, size_bytes), offset, size_bytes); });
  }
  void recv(std::vector<int> ranks, uint64_t slot, size_t offset, size_t size_bytes) override {
    post([&] {
      inner_->recv(std::move(ranks), slot_of(slot, offset, size_bytes), offset, size_bytes);
    });
  }

 private:
  uint64_t slot_of(uint64_t slot, size_t offset, size_t size_bytes) const {
    return slot_by_size(slot, size_bytes == kUnspecifiedByteCount ? size - offset : size_bytes);
  }
  // A closed connection is told by the next wait, since it may take a moment to find out why.
  template <typename Body>
  void post(const Body& body) {
    waits_.check();
    try {
      body();
    } catch (const std::exception& e) {
      post_failure_ = e.what();
    }
  }
  template <typename Body>
  void wait(const Body& body) {
    waits_.check();
    if (!post_failure_.empty()) waits_.fail(post_failure_);
    if (before_wait_) before_wait_();
    bool is_done = false;
    try {
      is_done = body();
    } catch (const std::exception& e) {
      waits_.fail(e.what());
    }
    if (!is_done) waits_.fail("the wait was ended");
  }

  const std::unique_ptr<UnboundBuffer> inner_;
  Waits& waits_;
  const std::function<void()>& before_wait_;
  std::string post_failure_;  // Why a send or a receive could not begin; else "".
};

namespace {

class EndableTransport final : public gloo::transport::Context {
 public:
  EndableTransport(std::shared_ptr<gloo::Context> mesh, Waits& waits,
                   std::function<void()> before_wait)
      : Context(mesh->rank, mesh->size),
        mesh_(std::move(mesh)),
        waits_(waits),
        before_wait_(std::move(before_wait)) {}

  std::unique_ptr<gloo::transport::Pair>& getPair(int peer) override {
    return mesh_->getPair(peer);
  }
  std::unique_ptr<gloo::transport::Pair>& createPair(int peer) override { return getPair(peer); }
  std::unique_ptr<gloo::transport::UnboundBuffer> createUnboundBuffer(void* bytes,
                                                                      size_t size_bytes) override {
    return std::make_unique<EndableBuffer>(mesh_->createUnboundBuffer(bytes, size_bytes), waits_,
                                           before_wait_);
  }

 private:
  const std::shared_ptr<gloo::Context> mesh_;
  Waits& waits_;
  const std::function<void()> before_wait_;
};

class EndableContext final : public gloo::Context {
 public:
  EndableContext(const std::shared_ptr<gloo::Context>& mesh, Waits& waits,
                 std::function<void()> before_wait)
      : Context(mesh->rank, mesh->size) {
    device_ = mesh->getDevice();
    transportContext_ = std::make_shared<EndableTransport>(mesh, waits, std::move(before_wait));
  }
};

}  // namespace

void Waits::end(const Outcome& why) {
  const std::lock_guard lock(mutex_);
  if (why_.status != BP_OK) return;
  why_ = why;
  changed_.notify_all();
  for (gloo::transport::UnboundBuffer* buffer : buffers_) {
    buffer->abortWaitRecv();
    buffer->abortWaitSend();
  }
}

std::string Waits::awaited() const {
  const std::lock_guard lock(mutex_);
  std::string ranks;
  for (const auto& [rank, messages] : expected_) {
    if (messages > 0) ranks += " rank " + std::to_string(rank);
  }
  return ranks;
}

void Waits::add(gloo::transport::UnboundBuffer* buffer) {
  const std::lock_guard lock(mutex_);
  buffers_.insert(buffer);
}

void Waits::remove(gloo::transport::UnboundBuffer* buffer) {
  const std::lock_guard lock(mutex_);
  buffers_.erase(buffer);
}

void Waits::check() const {
  const std::lock_guard lock(mutex_);
  if (why_.status != BP_OK) refuse(why_.status, why_.text);
}

void Waits::expect(int rank, int messages) {
  const std::lock_guard lock(mutex_);
  expected_[rank] += messages;
}

void Waits::fail(const std::string& reason) {
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(1), [&] { return why_.status != BP_OK; });
    if (why_.status != BP_OK) refuse(why_.status, why_.text);
  }
  const std::string ranks = awaited();
  refuse(BP_ABORTED,
         "the connection to" + (ranks.empty() ? " a rank" : ranks) + " is closed: " + reason);
}

std::shared_ptr<gloo::Context> endable_context(const std::shared_ptr<gloo::Context>& mesh,
                                               Waits& waits, std::function<void()> before_wait) {
  return std::make_shared<EndableContext>(mesh, waits, std::move(before_wait));
}

}  // namespace bp::cpu
