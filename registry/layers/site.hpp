// Finds where a call came from.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace bp::layers {

// The innermost callers outside of the layers, as addresses. They are cheap to take, and become
// text only if they are shown.
class Site {
 public:
  // Takes the present site, and skips `skip` frames in front of the caller's own.
  static Site here(int skip = 0);

  // Returns text like "run_step+0x1c (libtrain.so+0x4f2c) < main+0x20 (train+0x1234)", or "" if no
  // site was taken. addr2line takes what is in parentheses.
  std::string words() const;

 private:
  static constexpr int kFrames = 8;
  std::array<void*, kFrames> frames_{};
  int count_ = 0;
};

}  // namespace bp::layers
