// What the devices did between start() and stop(), by the profilers of their plugins.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "../devices.h"

namespace bpt {

// One piece of work of a device. The times are nanoseconds since 1970, as in PyTorch's records.
struct DeviceRecord {
  std::string name;
  c10::DeviceIndex device;
  const bp_stream* stream;  // May be destroyed by now: it is only compared.
  int64_t start_ns;
  int64_t end_ns;
  uint64_t origin;  // What push() was given before the submission; 0: nothing.
  uint64_t bytes;   // Bytes read and written; 0: not known.
  uint64_t flops;   // 0: not known.
  bp_activity_kind kind;
};

// A recording of all devices that are loaded when it starts. push() and pop() are safe from any
// thread; one thread at a time calls the others.
class Recording {
 public:
  Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  ~Recording();

  // A device that cannot be recorded is left out, with a sentence in problems().
  void start();

  // Waits for the work that was submitted since start(). Does nothing if nothing is recorded.
  void stop();

  // What this thread submits until the matching pop() has this origin, which is not 0. Calls nest.
  void push(uint64_t origin);
  void pop();

  // The records of all that was recorded before the last stop().
  const std::vector<DeviceRecord>& records() const { return records_; }
  const std::vector<std::string>& problems() const { return problems_; }

 private:
  struct Source;
  using Tables = std::vector<const bp_profiler_ops*>;

  void begin(c10::DeviceIndex index);
  void end(Source& source);
  void set_tables();
  std::shared_ptr<const Tables> tables() const;

  std::vector<std::unique_ptr<Source>> sources_;
  std::vector<DeviceRecord> records_;
  std::vector<std::string> problems_;
  mutable std::mutex mutex_;              // Guards tables_.
  std::shared_ptr<const Tables> tables_;  // Each table of functions once, though devices share it.
};

}  // namespace bpt
