// The options of a group over Gloo, and the address on which the ranks of a process listen.
#pragma once

#include <gloo/transport/tcp/device.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

#include "backplane/collective.h"

namespace bp::cpu {

// An option that is empty was not given.
struct ListenOptions {
  std::string interface_name, hostname;
  bool shares_memory = true;  // See shm/lanes.hpp.
};

// Reads the options of a desc for the table `table_name`. Throws StatusError.
ListenOptions read_listen_options(const bp_process_group_desc& desc, const char* table_name);

// Makes the device of Gloo that listens there: at the interface or the host name that the options
// have, else at the loopback address if all ranks are local, else at the address of this host's
// name. Throws StatusError of BP_INVALID_ARGUMENT, whose text begins with `call`, if this host has
// no such address.
std::shared_ptr<gloo::transport::tcp::Device> listen(const ListenOptions& options, bool is_local,
                                                     const char* call);

// Lets the loop of a device turn every half a millisecond. Gloo waits for a turn whenever a
// connection begins or ends, and an idle loop turns every 10 ms: 8 ranks would wait for 70 ms.
class QuickLoop final : public gloo::transport::tcp::Handler {
 public:
  explicit QuickLoop(std::shared_ptr<gloo::transport::tcp::Device> device);
  ~QuickLoop() override;
  QuickLoop(const QuickLoop&) = delete;

  void handleEvents(int events) override;  // Runs on the thread of the loop.

 private:
  const std::shared_ptr<gloo::transport::tcp::Device> device_;
  int timer_;  // -1 if the system has none left; the loop then turns as it does.

  std::mutex mutex_;  // It guards the members below.
  std::condition_variable ended_;
  bool is_stopping_ = false, is_ended_ = false;
};

}  // namespace bp::cpu
