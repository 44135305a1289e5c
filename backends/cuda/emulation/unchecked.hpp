// What the emulated device says of its own accesses of memory to the check of races
// (race_check.hpp).
#pragma once

#include <cstddef>
#include <cstdint>

namespace bp::cuda::emulation {

class RaceCheck;

enum class AccessKind : uint8_t { kRead, kWrite, kAtomic };

// While an object of this class lives, the accesses of the running thread are not noted. The thread
// must not wait meanwhile.
class Unchecked {
 public:
  Unchecked();
  ~Unchecked();
  Unchecked(const Unchecked&) = delete;
  Unchecked& operator=(const Unchecked&) = delete;

  // Notes this access all the same.
  void note(const void* address, size_t size, AccessKind kind) const;

 private:
  RaceCheck* before_;
};

}  // namespace bp::cuda::emulation
