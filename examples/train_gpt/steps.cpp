#include "train_gpt/steps.hpp"

namespace {

// Returns how many ops the device has been given so far.
uint64_t launch_count(bp::Device device) {
  bp_dispatch_statistics s{};
  s.struct_size = sizeof(s);
  s.struct_type = BP_STRUCT_DISPATCH_STATISTICS;
  bp::check(bp_target_statistics(&device.target(), 0, &s), "target.statistics");
  return s.native_count + s.decomposed_count + s.host_fallback_count;
}

template <typename T>
void put(const bp::Tensor& tensor, T value) {
  tensor.copy_from_host(&value, sizeof(value));
}

template <typename T>
void put(const bp::Tensor& tensor, const std::vector<T>& values) {
  tensor.copy_from_host(values.data(), values.size() * sizeof(T));
}

}  // namespace

bp::Tensor loss_of(bp::nn::Module& model, const Windows& windows) {
  return bp::cross_entropy(model(windows.inputs).flatten(0, 1), windows.targets);
}

double Steps::take(const Tokens& tokens, int64_t step, double lr) {
  const uint64_t seed =
      hashed(static_cast<uint64_t>(options_.seed) + 2, static_cast<uint64_t>(step));
  if (!options_.capture || taken_++ < kEagerSteps) {
    return eager(to_device(tokens, options_.context), seed, lr);
  }
  if (!graph_) capture(to_device(tokens, options_.context));
  return replay(tokens, seed, step, lr);
}

double Steps::eager(const Windows& windows, uint64_t seed, double lr) {
  const bp::Device device = bp::current_device();
  const uint64_t before = launch_count(device);
  device.generator().set_seed(seed);
  optimizer_.zero_grad();
  const bp::Tensor loss = loss_of(model_, windows);
  loss.backward();
  if (options_.clip > 0) bp::clip_grad_norm_on_device(model_.parameters(), options_.clip);
  optimizer_.set_lr(lr);
  optimizer_.step();
  work_count_ = launch_count(device) - before;
  return loss.item<double>();
}

// Records the step that eager() takes, with all that changes from step to step in tensors.
void Steps::capture(const Windows& windows) {
  inputs_ = Inputs{windows, bp::from_host<uint64_t>({0}, {}), bp::zeros({}, BP_F64),
                   bp::zeros({}, BP_I64)};
  bp::current_device().generator().set_seed(inputs_->seed);
  bp::Capture capture;
  optimizer_.zero_grad();
  loss_ = loss_of(model_, inputs_->windows);
  loss_.backward();
  if (options_.clip > 0) bp::clip_grad_norm_on_device(model_.parameters(), options_.clip);
  optimizer_.step(inputs_->lr, inputs_->step);
  graph_ = capture.end();
  work_count_ = graph_->info().node_count;
}

double Steps::replay(const Tokens& tokens, uint64_t seed, int64_t step, double lr) {
  put(inputs_->windows.inputs, tokens.inputs);
  put(inputs_->windows.targets, tokens.targets);
  put(inputs_->seed, seed);
  put(inputs_->lr, lr);
  put(inputs_->step, step);
  graph_->launch();
  optimizer_.count_steps(1);
  return loss_.item<double>();
}
