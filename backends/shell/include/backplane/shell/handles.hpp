// The handles of one device: what the host has made of it and not yet ended. A device keeps them to
// wait for their work, to find the buffer at an address, and to free what the host never freed.
//
//   class Device : public DeviceHandles<Stream, Queue, Buffer, Event> {
//    public:
//     using DeviceHandles::add;
//     bool add(Buffer* buffer) { return buffers_.add(buffer, buffer->address, true); }
//     Stream* create_stream() { return streams_.add(...); }
//     ...
//   };
//
// Rules:
//   Threads    Every function may be called from any thread. A function that is passed in is called
//              under the lock of the set, so it must not use the set; where it is not, we say so.
//   Ownership  The sets own nothing, except that delete_all() and end_all() end what is left when
//              the device ends.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "backplane/memory.h"
#include "backplane/shell/address_map.hpp"
#include "backplane/shell/deadline.hpp"
#include "backplane/shell/entry.hpp"
#include "backplane/shell/first_size.hpp"
#include "backplane/shell/lookup.hpp"
#include "backplane/shell/timeline.hpp"

namespace bp {

template <typename Object>
class HandleSet {
 public:
  void add(Object* object) {
    const std::lock_guard lock(mutex_);
    objects_.insert(object);
  }
  void remove(Object* object) {
    const std::lock_guard lock(mutex_);
    objects_.erase(object);
  }
  bool is_empty() const {
    const std::lock_guard lock(mutex_);
    return objects_.empty();
  }

  // Calls use(Object&) for each.
  template <typename Use>
  void for_each(const Use& use) const {
    const std::lock_guard lock(mutex_);
    for (Object* const object : objects_) use(*object);
  }

  // Nobody uses the objects any more.
  void delete_all() {
    for (Object* const object : objects_) delete object;
    objects_.clear();
  }

 private:
  mutable std::mutex mutex_;  // Guards what follows.
  std::unordered_set<Object*> objects_;
};

// The buffers of a device. Of those that own their memory no two overlap.
template <typename Buffer>
class BufferSet {
 public:
  // False if the buffer owns memory that overlaps that of another, and nothing was added.
  bool add(Buffer* buffer, uint64_t address, bool owns_memory) {
    const std::lock_guard lock(mutex_);
    if (owns_memory && !places_.add(address, buffer->size_bytes, buffer)) return false;
    try {
      addresses_.emplace(buffer, address);
    } catch (...) {
      places_.remove(address, buffer);
      throw;
    }
    return true;
  }
  void remove(Buffer* buffer) {
    const std::lock_guard lock(mutex_);
    const auto known = addresses_.find(buffer);
    if (known == addresses_.end()) return;
    places_.remove(known->second, buffer);
    addresses_.erase(known);
  }
  bool is_empty() const {
    const std::lock_guard lock(mutex_);
    return addresses_.empty();
  }

  // Fills `info`, but not its `device`, with the buffer that owns the memory at an address; false
  // if none does.
  bool find(uint64_t address, bp_address_info& info) const {
    const std::lock_guard lock(mutex_);
    Buffer* const owner = places_.find(address);
    if (owner == nullptr) return false;
    info.buffer = reinterpret_cast<bp_buffer*>(owner);
    info.byte_offset = address - addresses_.at(owner);
    info.size_bytes = owner->size_bytes;
    return true;
  }

  // What use(Buffer&) returns for the buffer that owns the memory at an address; empty if none
  // does.
  template <typename Use>
  auto with_owner(uint64_t address, const Use& use) const {
    const std::lock_guard lock(mutex_);
    Buffer* const owner = places_.find(address);
    return owner == nullptr ? decltype(use(*owner)){} : use(*owner);
  }

  // Calls discard(Buffer&), which ends the memory, for each buffer. The handles stay, and their
  // addresses are free for other buffers. A buffer that another thread adds meanwhile keeps both
  // its memory and its address.
  template <typename Discard>
  void forget_memory(const Discard& discard) {
    const std::lock_guard lock(mutex_);
    places_ = {};
    for (const auto& [buffer, address] : addresses_) discard(*buffer);
  }

  // Calls end(buffer), which deletes it, for each. Nobody uses the buffers any more.
  template <typename End>
  void end_all(const End& end) {
    for (const auto& [buffer, address] : addresses_) end(buffer);
    addresses_.clear();
    places_ = {};
  }

 private:
  mutable std::mutex mutex_;  // Guards what follows.
  std::unordered_map<Buffer*, uint64_t> addresses_;
  AddressMap<Buffer> places_;  // Of the buffers that own their memory.
};

// What the entry address_info of an allocator does: fills *out_info with the buffer, of one of
// `devices`, that owns the memory at an address. A device has find(address, bp_address_info&).
// Throws StatusError.
template <typename Device>
bp_status find_address(std::span<const std::unique_ptr<Device>> devices, uint64_t address,
                       bp_address_info* out_info) {
  check_offer(out_info, kFirstSize<bp_address_info>, "address_info: out_info");
  for (const std::unique_ptr<Device>& device : devices) {
    bp_address_info info{};
    if (!device->find(address, info)) continue;
    info.device = reinterpret_cast<bp_device*>(device.get());
    write_offer(info, out_info);
    return BP_OK;
  }
  refuse(BP_NOT_FOUND,
         "address_info: address " + std::to_string(address) + " lies in no buffer of this backend");
}

// The streams of a device, and the default stream. A stream is a handle of its `Work`, such as a
// Queue, which lives on after the handle until it has ended. The backend has
//   const std::shared_ptr<Work>& work_of(const Stream&)
// in the namespace of the stream. A copy of a Stream is a second handle of its work. A stream that
// was made before a reset of its device is dead, and stays until it is destroyed. The default
// stream goes on with another Stream then. Threads may still use the one before, so that stays too.
template <typename Stream, typename Work>
class StreamSet {
 public:
  Stream* add(std::unique_ptr<Stream> stream) {
    const std::lock_guard lock(mutex_);
    return insert(std::move(stream));
  }

  // Deletes the handle. Its work is waited for as before. The last handle of some work leaves it in
  // closing_.
  void destroy(Stream* stream) {
    {
      const std::lock_guard lock(mutex_);
      std::erase_if(closing_, [](const std::weak_ptr<Work>& work) { return work.expired(); });
      streams_.erase(stream);
      const auto has_its_work = [&](const Stream* other) {
        return work_of(*other) == work_of(*stream);
      };
      if (std::ranges::none_of(streams_, has_its_work)) closing_.push_back(work_of(*stream));
    }
    stream->magic = 0;
    delete stream;
  }

  // Adds a second handle of a living stream for which matches(stream) is true; NULL if there is
  // none.
  template <typename Matches>
  Stream* add_copy(const Matches& matches) {
    const std::lock_guard lock(mutex_);
    const auto known = std::ranges::find_if(streams_, [&](const Stream* stream) -> bool {
      return is_alive(*stream) && matches(*stream);
    });
    return known == streams_.end() ? nullptr : insert(std::make_unique<Stream>(**known));
  }

  // Returns the handle of the default stream, which stays the same. If there is none, it becomes
  // what make(), a std::unique_ptr<Stream>, returns. If its device was reset, the handle goes on
  // with such a stream. The set is not locked while make() runs.
  template <typename Make>
  Stream* default_stream(const Make& make) {
    if (!has_living_default()) {
      std::unique_ptr<Stream> made = make();
      const std::lock_guard lock(mutex_);
      // Another thread may have been quicker; then `made` ends behind the lock.
      if (heir_ == nullptr || !is_alive(*heir_)) heir_ = insert(std::move(made));
      if (default_ == nullptr) default_ = heir_;
    }
    const std::lock_guard lock(mutex_);
    return default_;
  }

  // Lets the default stream, if there is one, go on after a reset.
  template <typename Make>
  void renew_default_stream(const Make& make) {
    if (has_default()) default_stream(make);
  }

  // Returns the stream with which a handle goes on. It is another one for the default stream alone.
  Stream& heir_of(Stream& stream) const {
    const std::lock_guard lock(mutex_);
    return &stream == default_ ? *heir_ : stream;
  }

  // Returns the handle that the host has of a stream.
  const Stream* handle_of(const Stream* stream) const {
    const std::lock_guard lock(mutex_);
    return stream == heir_ ? default_ : stream;
  }
  bool is_default(const Stream* stream) const {
    const std::lock_guard lock(mutex_);
    return stream != nullptr && (stream == default_ || stream == heir_);
  }
  bool is_empty() const {
    const std::lock_guard lock(mutex_);
    return streams_.empty();
  }

  // The work of all streams, and that of destroyed streams which has not ended. Two handles of one
  // stream have the same work.
  std::vector<std::shared_ptr<Work>> live_work() const {
    std::vector<std::shared_ptr<Work>> live;
    const std::lock_guard lock(mutex_);
    for (const Stream* const stream : streams_) live.push_back(work_of(*stream));
    for (const std::weak_ptr<Work>& closing : closing_) {
      if (std::shared_ptr<Work> work = closing.lock()) live.push_back(std::move(work));
    }
    return live;
  }

  // Blocks until that work has ended; false if timeout_ns passed first.
  bool wait(uint64_t timeout_ns) const {
    const Deadline deadline(timeout_ns);
    for (const std::shared_ptr<Work>& work : live_work()) {
      if (!work->wait(deadline.left_ns())) return false;
    }
    return true;
  }

  // Ends what waits for an event that nobody can complete any more.
  void abandon() const {
    for (const std::shared_ptr<Work>& work : live_work()) work->abandon();
  }

  // Nobody uses the streams any more.
  void delete_all() {
    for (Stream* const stream : streams_) delete stream;
    streams_.clear();
    default_ = heir_ = nullptr;
  }

 private:
  Stream* insert(std::unique_ptr<Stream> stream) {
    streams_.insert(stream.get());
    return stream.release();
  }

  // A stream without a generation is of a device that is never reset.
  static bool is_alive(const Stream& stream) {
    if constexpr (requires { stream.generation; }) {
      return stream.generation == stream.device->generation();
    } else {
      return true;
    }
  }

  bool has_default() const {
    const std::lock_guard lock(mutex_);
    return default_ != nullptr;
  }
  bool has_living_default() const {
    const std::lock_guard lock(mutex_);
    return heir_ != nullptr && is_alive(*heir_);
  }

  mutable std::mutex mutex_;  // Guards what follows.
  std::unordered_set<Stream*> streams_;
  std::vector<std::weak_ptr<Work>> closing_;  // Of destroyed streams.
  Stream* default_ = nullptr;                 // The handle that the host has of the default stream.
  Stream* heir_ = nullptr;  // The stream behind that handle; another one after a reset.
};

// The semaphores of a device that has none.
struct NoSemaphore {
  std::shared_ptr<Timeline> timeline;
};

// The base of a Device, with its handles. A Device replaces the functions that must do more, and
// adds how its streams are made and where its buffers lie:
//   Stream* create_stream(), default_stream()
//   bool add(Buffer*)
template <typename Stream, typename Work, typename Buffer, typename Event,
          typename Semaphore = NoSemaphore>
class DeviceHandles {
 public:
  // Blocks until the work of all streams has ended. Returns false if timeout_ns passed first.
  bool wait(uint64_t timeout_ns) { return streams_.wait(timeout_ns); }

  // Ends all waits at shutdown, because nobody will signal events and semaphores any more.
  void abandon_work() {
    for (const std::shared_ptr<Timeline>& timeline : timelines()) timeline->stop();
    streams_.abandon();
  }

  bool is_default_stream(const Stream* stream) const { return streams_.is_default(stream); }
  Stream& heir_of(Stream& stream) const { return streams_.heir_of(stream); }
  const Stream* handle_of(const Stream* stream) const { return streams_.handle_of(stream); }
  void destroy_stream(Stream* stream) { streams_.destroy(stream); }

  void remove(Buffer* buffer) { buffers_.remove(buffer); }
  void add(Event* event) { events_.add(event); }
  void remove(Event* event) { events_.remove(event); }
  void add(Semaphore* semaphore) { semaphores_.add(semaphore); }
  void remove(Semaphore* semaphore) {
    semaphores_.remove(semaphore);
    kept_.add(semaphore->timeline);
  }

  // Fills `info`, but not its `device`, with the buffer that owns the memory at an address. Returns
  // false if no buffer of this device does.
  bool find(uint64_t address, bp_address_info& info) const { return buffers_.find(address, info); }

  // Returns whether the host has handles of this device.
  bool is_in_use() const {
    return !streams_.is_empty() || !buffers_.is_empty() || !events_.is_empty() ||
           !semaphores_.is_empty();
  }

 protected:
  // Ends all waits for semaphores, because the device is lost.
  void lose_semaphores(const Outcome& loss) {
    for (const std::shared_ptr<Timeline>& timeline : timelines()) timeline->lose(loss);
  }

  // The timelines that work may wait for.
  std::vector<std::shared_ptr<Timeline>> timelines() const {
    std::vector<std::shared_ptr<Timeline>> all = kept_.all();
    semaphores_.for_each([&](const Semaphore& each) { all.push_back(each.timeline); });
    return all;
  }

  // Deletes what the host has made and not ended. Nobody uses it any more.
  void delete_all() {
    events_.delete_all();
    semaphores_.delete_all();
    streams_.delete_all();
    buffers_.end_all([](Buffer* buffer) { delete buffer; });
  }

  StreamSet<Stream, Work> streams_;
  BufferSet<Buffer> buffers_;
  HandleSet<Event> events_;
  HandleSet<Semaphore> semaphores_;

 private:
  KeptTimelines kept_;
};

}  // namespace bp
