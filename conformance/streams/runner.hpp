// Runs stream programs on a device, held back and delayed at seeded places, and compares every byte
// with the meaning of the program.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "backplane/host.h"
#include "conformance/streams/model.hpp"

namespace bp::conformance {

// What of the device the programs use.
struct StreamAbilities {
  bool has_host_signals = false;        // Events that the host signals hold streams back.
  uint32_t launch_alignment_bytes = 0;  // Of the tensors of launches; 0: no kernel to launch.
};
StreamAbilities stream_abilities(const bp_target& target);

// How a run went wrong.
struct Deviation {
  std::string what;
  std::string tag;      // The requirement that it breaks, as far as it alone can tell.
  std::string cause;    // "order", "status" or "timeout".
  int32_t writer = -1;  // The step whose bytes are not there, or -1.
};

// Runs `program`, whose meaning is `model`. Delays depend on `delay_seed` alone; 0 is without.
// Nothing if all went as it must.
std::optional<Deviation> run_program(const bp_target& target, const Program& program,
                                     const Model& model, const StreamAbilities& abilities,
                                     uint64_t delay_seed);

// The requirement that the shortest failing program points to.
std::string suspect_tag(const Program& shortest, const Deviation& deviation);

}  // namespace bp::conformance
