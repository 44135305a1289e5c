// Lets a layer write its last data if a process ends without unloading its plugins.
#pragma once

#include <functional>

namespace bp::layers {

// Calls `flush` when the process exits, unless this object has ended by then. Programs that keep
// their registry until the end, as programs of the C++ runtime do, never shut an instance down.
class AtExit {
 public:
  explicit AtExit(std::function<void()> flush);
  AtExit(const AtExit&) = delete;
  ~AtExit();

 private:
  friend struct AtExitList;
  std::function<void()> flush_;
};

}  // namespace bp::layers
