// Runs stream programs on a device, held back and delayed at seeded places. It compares every byte
// with the meaning of the program.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "backplane/host.h"
#include "conformance/streams/model.hpp"

namespace bp::conformance {

// The abilities of the device that programs use.
struct StreamAbilities {
  bool has_host_signals = false;        // The device has events that the host signals, which hold
                                        // streams back.
  uint32_t launch_alignment_bytes = 0;  // The alignment of the tensors of launches; 0: there is no
                                        // kernel to launch.
};
StreamAbilities stream_abilities(const bp_target& target);

// A difference from the meaning of the program.
struct Deviation {
  std::string what;
  std::string tag;      // The requirement that it breaks, as far as this difference alone shows it.
  std::string cause;    // One of "order", "status" and "timeout".
  int32_t writer = -1;  // The step whose bytes are missing, or -1.
};

// Runs `program`, whose meaning is `model`. Delays depend on `delay_seed` alone; 0 means no delays.
// Returns nothing if every result was right.
std::optional<Deviation> run_program(const bp_target& target, const Program& program,
                                     const Model& model, const StreamAbilities& abilities,
                                     uint64_t delay_seed);

// Returns the requirement that the shortest failing program points to.
std::string suspect_tag(const Program& shortest, const Deviation& deviation);

}  // namespace bp::conformance
