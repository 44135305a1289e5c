// Graphs. A capture keeps calls (backends/shell/capture.hpp). This way it knows slots, and a call
// that is not legal is refused without harm; CUDA would end its own capture. A replay runs a CUDA
// graph, which is made by capturing these calls on a stream that nothing else uses. When a slot is
// bound again, the CUDA graph is made again, and the executable graph is updated in place.
#pragma once

#include "backends/cuda/backend.hpp"
#include "backplane/shell/graph.hpp"

namespace bp::cuda {

// Submits all work of `graph` to a stream. Throws StatusError.
bp_status replay(const Instance& i, GraphInstance& graph, bp_stream* stream);

}  // namespace bp::cuda
