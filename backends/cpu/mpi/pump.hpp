// The thread that goes on with the calls of all groups of an instance.
#pragma once

#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "backends/cpu/mpi/alarm.hpp"
#include "backends/cpu/mpi/world.hpp"

namespace bp::mpi {

class Pump {
 public:
  Pump() = default;
  Pump(const Pump&) = delete;

  // Ends the groups that the host has not destroyed, and tells the other ranks.
  ~Pump();

  // Goes on with a new group until it is over. The thread starts with the first group. If the
  // process exits before that, the thread ends before MPI does.
  void add(std::shared_ptr<World> world);

  const std::shared_ptr<Alarm>& alarm() const { return alarm_; }

 private:
  using Worlds = std::vector<std::shared_ptr<World>>;

  void stop();
  void run();
  bool is_stopping();
  Worlds take_added();
  void say_goodbye();

  const std::shared_ptr<Alarm> alarm_ = std::make_shared<Alarm>();

  std::mutex mutex_;  // It guards the members below.
  Worlds added_;
  bool is_stopping_ = false;
  const Api* api_ = nullptr;  // Of the first group that needs MPI.

  Worlds worlds_;  // The thread alone uses them.
  std::thread thread_;
};

}  // namespace bp::mpi
