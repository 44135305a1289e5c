// CPY, CONT, DUP, and other ops that move elements.
#include "lower.h"

namespace bpg {

void lower_copy(Emitter& e, const ggml_tensor* node) {
  const ggml_tensor* const from = node->src[0];
  View x = e.tensor(from), y = e.tensor(node);
  if (!x.has_shape(y)) {
    // Elements are counted in the order of both shapes.
    View reshaped;
    if (reshape_view(x, y.dims(), reshaped)) {
      x = reshaped;
    } else if (reshape_view(y, x.dims(), reshaped)) {
      y = reshaped;
    } else {
      x = e.reshape(x, y.dims());
    }
  }
  e.copy(x, y);
}

}  // namespace bpg
