// The open captures of one target (bp_capture_begin()), and what each keeps for its graph.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "backplane/host.h"

namespace bp::core {
struct OpRow;
}

namespace bp::services {

class CacheSet;
struct PrivatePool;

// What writes the launches of a capture into a program. It is thread-safe.
class LaunchRecorder {
 public:
  LaunchRecorder() = default;
  LaunchRecorder(const LaunchRecorder&) = delete;
  virtual ~LaunchRecorder() = default;

  // Says that the pool of the capture has handed out these bytes.
  virtual void hand_out(const bp_buffer_ref& range) = 0;

  // Returns what stands for memory that only the program has.
  virtual bp_buffer* make_buffer(uint64_t size_bytes) = 0;

  // Appends a launch. Returns BP_UNSUPPORTED, with the text, for a call that no program can have,
  // or that the compiler takes in no form.
  virtual bp_status launch(const core::OpRow& row, bp_launch_flags flags, const void* frame) = 0;
};

// What a captured graph keeps beside the graph of the backend: the pool with its memory, and the
// plans and programs that recorded launches use. It is thread-safe.
class CaptureParts {
 public:
  // `recorder` is NULL for a capture of the backend, or writes the launches into a program.
  explicit CaptureParts(CacheSet& caches, std::shared_ptr<LaunchRecorder> recorder = {});
  CaptureParts(const CaptureParts&) = delete;
  ~CaptureParts();

  // Keeps `kept` until the end of this object. `block` is NULL, or memory of `kept` outside of the
  // pool that replays use.
  void keep(std::shared_ptr<const void> kept, bp_block* block);

  // Says that replays on `stream` use the pool and the blocks of what is kept.
  bp_status use(bp_stream* stream);

  uint64_t kept_count() const;
  const PrivatePool* pool() const { return pool_; }
  LaunchRecorder* recorder() const { return recorder_.get(); }

  // Lets go of what it keeps, and ends the pool. Returns the first failure of the backend.
  bp_status end();

 private:
  PrivatePool* pool_;
  const std::shared_ptr<LaunchRecorder> recorder_;
  mutable std::mutex mutex_;
  struct Kept {
    std::shared_ptr<const void> object;
    bp_block* block;
  };
  std::vector<Kept> kept_;  // mutex_ guards it.
};

// It is thread-safe.
class Captures {
 public:
  explicit Captures(const bp_target& target) : target_(target) {}
  Captures(const Captures&) = delete;

  // Returns whether a capture is open. This is all that an allocation without captures costs.
  bool any() const { return count_.load(std::memory_order_relaxed) != 0; }

  // Adds a capture of the backend. `id` is that of bp_capture_info.
  void add(uint64_t id, std::shared_ptr<CaptureParts> parts);
  // Adds a capture that writes the launches on `stream` into a program. Returns false if the stream
  // has one already.
  bool add_program(bp_stream* stream, std::shared_ptr<CaptureParts> parts);
  void remove(const CaptureParts& parts);

  // Gives the parts of the capture to which `stream` belongs now, or NULL if it belongs to none of
  // these captures.
  bp_status find(bp_stream* stream, std::shared_ptr<CaptureParts>& out_parts) const;

  // Keeps `kept` for the graph of the capture to which `stream` belongs, if it belongs to one.
  bp_status keep(bp_stream* stream, std::shared_ptr<const void> kept,
                 bp_block* block = nullptr) const;

 private:
  struct Open {
    uint64_t id;        // 0 for a program.
    bp_stream* stream;  // NULL for a capture of the backend.
    std::shared_ptr<CaptureParts> parts;
  };

  const bp_target& target_;
  std::atomic<uint32_t> count_ = 0;
  mutable std::mutex mutex_;
  std::vector<Open> open_;      // mutex_ guards it.
  uint32_t program_count_ = 0;  // mutex_ guards it: the part of open_ that writes programs.
};

}  // namespace bp::services
