// The options of add_provider_for_devices().
#pragma once

#include <cstddef>
#include <optional>

#include "ort.hpp"

namespace bpo {

struct Options {
  // How many sets of input shapes of a partition are kept as recorded graphs. 0: none; each run
  // then launches op by op.
  size_t graph_count = 8;
  // Whether they are recorded as programs of the device's compiler, where it takes them. Without a
  // value they are on a device without kernels, which runs compiled programs alone.
  std::optional<bool> as_programs;
};

// The options as users write them, with what they do.
inline constexpr const char* kOptionHelp =
    "backplane.graphs (0 to 1024: how many sets of input shapes of a partition are recorded and "
    "replayed), backplane.programs (0 or 1: whether they are programs of the device's compiler)";

// Reads the options of the provider `name` out of the options of a session. Throws OrtError for an
// option that does not exist, and for a value that is not allowed.
Options read_options(const Ort& ort, const OrtSessionOptions* session, const char* name);

}  // namespace bpo
