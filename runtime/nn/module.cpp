#include <algorithm>

#include "backplane/runtime/autograd.hpp"
#include "backplane/runtime/nn.hpp"
#include "runtime/nn/state.hpp"

namespace bp::nn {

// Refuses a name that is used: state_dict() would have one entry for both and lose the other.
void Module::check_name(const std::string& name) const {
  const auto is_it = [&](const auto& entry) { return entry.first == name; };
  if (std::ranges::none_of(parameters_, is_it) && std::ranges::none_of(modules_, is_it)) return;
  throw Error(BP_INVALID_ARGUMENT, "Module: the name '" + name + "' is taken");
}

Tensor Module::add_parameter(std::string name, const Tensor& tensor) {
  check_name(name);
  tensor.set_requires_grad();
  parameters_.emplace_back(std::move(name), tensor);
  return tensor;
}

void Module::add_module(std::string name, std::shared_ptr<Module> module) {
  check_name(name);
  if (module == nullptr) {
    throw Error(BP_INVALID_ARGUMENT, "Module: the layer '" + name + "' is a null pointer");
  }
  modules_.emplace_back(std::move(name), std::move(module));
}

void Module::collect(const std::string& prefix,
                     std::vector<std::pair<std::string, Tensor>>& parameters) const {
  for (const auto& [name, tensor] : parameters_) parameters.emplace_back(prefix + name, tensor);
  for (const auto& [name, module] : modules_) module->collect(prefix + name + ".", parameters);
}

std::vector<std::pair<std::string, Tensor>> Module::named_parameters() const {
  std::vector<std::pair<std::string, Tensor>> parameters;
  collect("", parameters);
  return parameters;
}

std::vector<Tensor> Module::parameters() const {
  std::vector<Tensor> tensors;
  for (const auto& [name, tensor] : named_parameters()) {
    const auto is_it = [&own = tensor](const Tensor& other) { return other.impl() == own.impl(); };
    if (std::ranges::none_of(tensors, is_it)) tensors.push_back(tensor);
  }
  return tensors;
}

std::vector<std::pair<std::string, std::shared_ptr<Module>>> Module::named_modules() const {
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> all;
  for (const auto& [name, module] : modules_) {
    all.emplace_back(name, module);
    for (const auto& [inner, layer] : module->named_modules()) {
      all.emplace_back(std::string(name).append(".").append(inner), layer);
    }
  }
  return all;
}

std::vector<std::string> Module::hook_names() const {
  std::vector<std::string> names;
  for (const Hook& hook : hooks_) names.push_back(hook.name);
  return names;
}

Tensor Module::call_hooked(const Tensor& x) {
  const std::vector<Hook> hooks = hooks_;  // A copy, since a call may run the module again.
  Tensor y = x;
  for (const Hook& hook : hooks) {
    if (hook.before) y = hook.before(y);
  }
  y = forward(y);
  for (auto hook = hooks.rbegin(); hook != hooks.rend(); ++hook) {
    if (hook->after) y = hook->after(y);
  }
  return y;
}

ForwardHook::ForwardHook(std::shared_ptr<Module> module, std::string name, Call before, Call after)
    : module_(std::move(module)) {
  if (module_ == nullptr) {
    throw Error(BP_INVALID_ARGUMENT,
                "ForwardHook: the module of the hook '" + name + "' is a null pointer");
  }
  id_ = module_->hooks_.empty() ? 1 : module_->hooks_.back().id + 1;
  module_->hooks_.push_back({id_, std::move(name), std::move(before), std::move(after)});
}

ForwardHook::~ForwardHook() {
  if (module_ == nullptr) return;
  std::erase_if(module_->hooks_, [&](const auto& hook) { return hook.id == id_; });
}

ForwardHook& ForwardHook::operator=(ForwardHook&& other) noexcept {
  std::swap(module_, other.module_);
  std::swap(id_, other.id_);
  return *this;
}

int64_t Module::parameter_count() const {
  int64_t count = 0;
  for (const Tensor& tensor : parameters()) count += tensor.numel();
  return count;
}

void Module::train(bool is_training) {
  is_training_ = is_training;
  for (const auto& [name, module] : modules_) module->train(is_training);
}

TensorMap Module::state_dict() const {
  TensorMap state;
  for (const auto& [name, tensor] : named_parameters()) state[name] = tensor.detach();
  return state;
}

void check_state(const std::vector<Expected>& parameters, const TensorMap& state) {
  std::string problems;
  for (const auto& [name, shape, dtype] : parameters) {
    const auto found = state.find(name);
    if (found == state.end()) {
      problems += "\n  '" + name + "' is missing";
    } else if (!(found->second.shape() == IntList(shape))) {
      problems += "\n  '" + name + "' is " + to_string(found->second.shape()) + "; the model has " +
                  to_string(shape);
    } else if (found->second.dtype() != dtype) {
      problems += "\n  '" + name + "' is " + dtype_text(found->second.dtype()) +
                  "; the model has " + dtype_text(dtype);
    }
  }
  for (const auto& [name, tensor] : state) {
    const auto is_it = [&known = name](const auto& expected) { return expected.name == known; };
    if (std::ranges::none_of(parameters, is_it)) {
      problems += "\n  '" + name + "' is not a parameter of the model";
    }
  }
  if (problems.empty()) return;
  throw Error(
      BP_INVALID_ARGUMENT,
      "load_state_dict: the state does not fit the model, so nothing was loaded:" + problems);
}

void Module::load_state_dict(const TensorMap& state) {
  const auto parameters = named_parameters();
  std::vector<Expected> expected;
  for (const auto& [name, tensor] : parameters) {
    expected.push_back({name, tensor.shape().to_vector(), tensor.dtype()});
  }
  check_state(expected, state);
  const NoGradGuard no_grad;
  for (const auto& [name, tensor] : parameters) {
    tensor.detach().copy_from(state.at(name).to(tensor.device()));
  }
}

}  // namespace bp::nn
