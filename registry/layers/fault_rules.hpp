// Says when a fault strikes: "memory.allocate@3:kernel.launch/softmax*@1/50".
//
//   GLOB@3     the third call that fits
//   GLOB@3+    the third and every one behind it
//   GLOB@1/50  one call in 50, drawn from the seed
//
// GLOB is matched with the name of the slot, and for kernels with "kernel.launch/NAME" too.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "backplane/base.h"

namespace bp::layers {

// Thread-safe after read().
class FaultRules {
 public:
  // Returns BP_INVALID_ARGUMENT with a text that says what is allowed, also for a GLOB that fits no
  // slot. `key` is for the text.
  bp_status read(std::string_view key, const std::string& text, uint64_t seed);

  bool is_empty() const { return rules_.empty(); }

  // Counts a call. Returns its number, counted from 1, if one of the rules strikes, else 0.
  // `kernel` is "" for the slots of tables.
  uint64_t strike(std::string_view slot, std::string_view kernel);

  // Returns the globs that no call has fitted.
  std::vector<std::string> idle() const;

 private:
  struct Rule {
    std::string glob;
    uint64_t first = 0;    // The call that it strikes, or 0 for a random one.
    bool goes_on = false;  // Whether it also strikes every call after `first`.
    uint64_t odds = 0;     // It strikes one call in so many.
    uint64_t seed = 0;
    std::atomic<uint64_t> count = 0;
  };

  static bool read_when(std::string_view text, Rule& rule);

  std::deque<Rule> rules_;
};

// Returns a number that depends on both arguments and looks random: splitmix64, Steele, Lea and
// Flood 2014.
uint64_t mix(uint64_t seed, uint64_t index);

}  // namespace bp::layers
