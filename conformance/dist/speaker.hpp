// How a rank speaks to its supervisor.
#pragma once

#include <mutex>
#include <nlohmann/json.hpp>

namespace bp::conformance::dist {

class Speaker {
 public:
  explicit Speaker(int descriptor) : descriptor_(descriptor) {}
  Speaker(const Speaker&) = delete;

  // Writes one line. If the supervisor is gone, the process ends.
  void say(const char* what, nlohmann::json line);

 private:
  const int descriptor_;
  std::mutex mutex_;
};

}  // namespace bp::conformance::dist
