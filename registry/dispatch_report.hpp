// Why calls of an op did not go to a kernel of the backend: the text of the first such call.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "registry/op_rows.hpp"

namespace bp::core {

class FirstReasons {
 public:
  // Keeps `text` as the reason of the op, unless it has one.
  void keep(uint32_t op_index, std::string text);

  // "" for an op without a reason.
  std::string of(uint32_t op_index) const;

 private:
  mutable std::mutex mutex_;
  std::map<uint32_t, std::string> texts_;  // Guarded by mutex_.
};

}  // namespace bp::core
