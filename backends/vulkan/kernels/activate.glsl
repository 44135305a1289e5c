// The activations of linear (BP_LINEAR_ACTIVATION_...). A shader that includes this file has the
// constant kActivation.
const uint kActivationRelu = 2u, kActivationGelu = 3u, kActivationSilu = 4u;

float activate(float x) {
  if (kActivation == kActivationRelu) return x < 0.0 ? 0.0 : x;
  if (kActivation == kActivationGelu) return gelu_f32(x);
  if (kActivation == kActivationSilu) return silu_f32(x);
  return x;
}
