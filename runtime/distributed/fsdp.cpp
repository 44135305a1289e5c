#include "backplane/runtime/distributed/fsdp.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "backplane/runtime/error.hpp"
#include "backplane/runtime/optim.hpp"
#include "registry/tensors/floats.hpp"
#include "runtime/distributed/agreement.hpp"
#include "runtime/distributed/fsdp_layout.hpp"
#include "runtime/distributed/sharder.hpp"

namespace bp::distributed {
namespace {

using Modules = std::vector<std::shared_ptr<nn::Module>>;
using NamedModules = std::vector<std::pair<std::string, std::shared_ptr<nn::Module>>>;

constexpr const char* kName = Sharder::kHookName;

[[noreturn]] void fail(const std::string& what) {
  throw Error(BP_INVALID_ARGUMENT, std::string(kName) + ": " + what);
}

// ---- Checks of the arguments: each returns a problem, or "" ------------------------------------

std::string problem_of(const FsdpOptions& options) {
  if (options.stage < 1 || options.stage > 3) {
    return "stage is " + std::to_string(options.stage) +
           "; allowed: 1 (shards the state of the optimizer), 2 (gradients as well) and 3 " +
           "(parameters as well)";
  }
  const std::pair<const char*, bp_dtype> dtypes[] = {{"compute_dtype", options.compute_dtype},
                                                     {"gather_dtype", options.gather_dtype},
                                                     {"reduce_dtype", options.reduce_dtype}};
  for (const auto& [name, dtype] : dtypes) {
    if (dtype == 0 || tensors::is_plain_float(dtype)) continue;
    return std::string(name) + " is " + dtype_text(dtype) + "; allowed: f16, bf16, f32, f64, or 0";
  }
  return "";
}

std::string problem_of(const Named& parameters, Device device) {
  if (parameters.empty()) return "the module has no parameters; allowed: at least one";
  const auto& [first_name, first] = parameters[0];
  for (const auto& [name, tensor] : parameters) {
    if (tensor.device() != device) {
      return "parameter '" + name + "' is on " + tensor.device().name() +
             "; allowed: " + device.name() + ", the device of the group";
    }
    if (tensor.get()->buffer == nullptr && tensor.numel() > 0) {
      return "parameter '" + name + "' has no memory: the module was sharded before; allowed: a " +
             "module with its own parameters";
    }
    if (tensor.dtype() == first.dtype()) continue;
    const std::string others = "'" + first_name + "' is " + dtype_text(first.dtype());
    return "parameter '" + name + "' is " + dtype_text(tensor.dtype()) + ", and " + others +
           "; allowed: one dtype";
  }
  return "";
}

std::string problem_of(const nn::Module& module, const NamedModules& layers, const Modules& units) {
  const auto is_wrapped = [](const nn::Module& m) {
    return std::ranges::count(m.hook_names(), kName) > 0;
  };
  if (is_wrapped(module)) return "the module is wrapped already; allowed: to wrap it once";
  for (const auto& [name, layer] : layers) {
    if (is_wrapped(*layer)) {
      return "layer '" + name + "' is wrapped already; allowed: to wrap it once";
    }
  }
  std::set<const nn::Module*> seen;
  for (size_t i = 0; i < units.size(); ++i) {
    const std::string unit = "unit " + std::to_string(i);
    if (units[i] == nullptr) return unit + " is a null pointer; allowed: a layer of the module";
    if (units[i].get() == &module) {
      return unit + " is the module itself; allowed: a layer of it, since the rest of the module " +
             "is a unit always";
    }
    const auto is_it = [&](const auto& entry) { return entry.second == units[i]; };
    if (std::ranges::none_of(layers, is_it)) {
      return unit + " is not a layer of the module; allowed: its layers, at any depth";
    }
    if (!seen.insert(units[i].get()).second) return unit + " is given twice; allowed: once";
  }
  return "";
}

std::string problem_of(const std::shared_ptr<nn::Module>& module, const Modules& units,
                       const ProcessGroup& group, const FsdpOptions& options) {
  if (module == nullptr) return "the module is a null pointer; allowed: a module";
  std::string problem = problem_of(options);
  if (problem.empty()) problem = problem_of(*module, module->named_modules(), units);
  if (problem.empty()) problem = problem_of(parameters_of(*module), group.device());
  if (problem.empty() && options.replicas && options.replicas->device() != group.device()) {
    problem = std::string("the group of the replicas is on ") + options.replicas->device().name() +
              "; allowed: " + group.device().name() + ", the device of the group";
  }
  return problem;
}

// Throws on all ranks of both groups if any of them has a problem.
void fail_together(const ProcessGroup& group, const FsdpOptions& options, std::string problem) {
  problem = first_problem(group, problem);
  if (options.replicas) problem = first_problem(*options.replicas, problem);
  if (!problem.empty()) fail(problem);
}

// Throws on all ranks of both groups if lines differ between any of them.
void compare(const ProcessGroup& group, const FsdpOptions& options, const std::string& line,
             const std::string& own) {
  std::string problem = first_difference(group, line, own);
  if (options.replicas) {
    problem = first_problem(*options.replicas, problem);
    if (problem.empty()) problem = first_difference(*options.replicas, line, own);
    problem = first_problem(group, problem);
  }
  if (!problem.empty()) fail("the ranks differ: " + problem);
}

std::string describe(const FsdpOptions& o) {
  return "stage " + std::to_string(o.stage) + "\nreshards_after_forward " +
         (o.reshards_after_forward ? "true" : "false") + "\nforward_prefetch " +
         std::to_string(o.forward_prefetch) + "\nbackward_prefetch " +
         std::to_string(o.backward_prefetch) + "\ncompute_dtype " + dtype_text(o.compute_dtype) +
         "\ngather_dtype " + dtype_text(o.gather_dtype) + "\nreduce_dtype " +
         dtype_text(o.reduce_dtype) + "\nshard_device " + (o.shard_device ? "given" : "not given") +
         "\n";
}

// ---- Units -------------------------------------------------------------------------------------

// Returns the units, the root first, with the parameters of each.
std::vector<Sharder::Unit> make_units(const std::shared_ptr<nn::Module>& module,
                                      const Modules& units) {
  std::vector<Sharder::Unit> made{{.name = "", .module = module, .parameters = {}}};
  std::vector<std::pair<std::string, size_t>> prefixes;  // A layer may have several names.
  const NamedModules layers = module->named_modules();
  for (const auto& unit : units) {
    for (const auto& [name, layer] : layers) {
      if (layer != unit) continue;
      if (made.back().module != unit)
        made.push_back({.name = name, .module = unit, .parameters = {}});
      prefixes.emplace_back(name + ".", made.size() - 1);
    }
  }
  const auto innermost = [&](const std::string& name) {
    size_t unit = 0, length = 0;
    for (const auto& [prefix, i] : prefixes) {
      if (prefix.size() > length && name.starts_with(prefix))
        std::tie(unit, length) = std::pair(i, prefix.size());
    }
    return unit;
  };
  std::map<const void*, size_t> owners;
  for (const auto& [name, tensor] : module->named_parameters()) {
    const auto [entry, is_new] = owners.emplace(tensor.impl(), innermost(name));
    if (!is_new && entry->second != innermost(name)) entry->second = 0;
  }
  for (const auto& [name, tensor] : parameters_of(*module)) {
    made[owners.at(tensor.impl())].parameters.emplace_back(name, tensor);
  }
  return made;
}

}  // namespace

FullyShardedDataParallel::FullyShardedDataParallel(std::shared_ptr<nn::Module> module,
                                                   const Modules& units, const ProcessGroup& group,
                                                   const FsdpOptions& options)
    : module_(std::move(module)), layout_(std::make_unique<Layout>()) {
  const NoGradGuard no_grad;
  const std::string problem = problem_of(module_, units, group, options);
  fail_together(group, options,
                problem.empty() ? "" : bp::distributed::describe(group) + ": " + problem);
  const Named parameters = parameters_of(*module_);
  FsdpOptions resolved = options;
  const bp_dtype dtype = parameters[0].second.dtype();
  if (resolved.compute_dtype == 0) resolved.compute_dtype = dtype;
  if (resolved.gather_dtype == 0) resolved.gather_dtype = resolved.compute_dtype;
  if (resolved.reduce_dtype == 0) resolved.reduce_dtype = dtype;
  const std::vector<Sharder::Unit> made = make_units(module_, units);
  std::string names;
  for (size_t i = 1; i < made.size(); ++i) names += "'" + made[i].name + "'\n";
  compare(group, resolved, "parameter", bp::distributed::describe(parameters));
  compare(group, resolved, "option", describe(resolved));
  compare(group, resolved, "unit", names);
  if (options.replicas) broadcast_parameters(*options.replicas, parameters);
  broadcast_parameters(group, parameters);
  std::map<const void*, size_t> numbers;
  layout_->places.resize(parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i) numbers[parameters[i].second.impl()] = i;
  for (size_t unit = 0; unit < made.size(); ++unit) {
    for (size_t i = 0; i < made[unit].parameters.size(); ++i) {
      layout_->places[numbers.at(made[unit].parameters[i].second.impl())] = {unit, i};
    }
  }
  for (const auto& [name, tensor] : module_->named_parameters()) {
    layout_->names.emplace_back(name, numbers.at(tensor.impl()));
  }
  sharder_ = std::make_unique<Sharder>(made, group, dtype, resolved);
}

FullyShardedDataParallel::~FullyShardedDataParallel() = default;

Tensor FullyShardedDataParallel::forward(const Tensor& x) { return (*module_)(x); }

const ProcessGroup& FullyShardedDataParallel::group() const { return sharder_->settings().group; }

std::vector<Tensor> FullyShardedDataParallel::parameters() const {
  std::vector<Tensor> shards;
  for (const auto& [unit, index] : layout_->places) {
    shards.push_back(sharder_->units()[unit]->shard(index));
  }
  return shards;
}

void FullyShardedDataParallel::zero_grad() {
  for (const Tensor& shard : parameters()) shard.set_grad({});
  for (const auto& unit : sharder_->units()) unit->drop_gradients();
}

Tensor FullyShardedDataParallel::clip_grad_norm(double most) const {
  const Tensor squares = squared_grad_norm(parameters());
  if (!squares) return {};
  const Tensor sum = squares.to(group().device());
  group().all_reduce(sum, Reduction::kSum).join();
  return scale_grads_to_norm(parameters(), sum.to(squares.device()), most);
}

std::vector<std::vector<std::string>> FullyShardedDataParallel::unit_names() const {
  std::vector<std::vector<std::string>> names;
  for (const auto& unit : sharder_->units()) {
    names.emplace_back();
    for (size_t i = 0; i < unit->parameter_count(); ++i) {
      names.back().push_back(unit->parameter_name(i));
    }
  }
  return names;
}

void FullyShardedDataParallel::average_gradients() { sharder_->average_sums(); }

FullyShardedDataParallel::NoSync::NoSync(FullyShardedDataParallel& fsdp)
    : fsdp_(fsdp), before_(fsdp.sharder_->set_syncing(false)) {}

FullyShardedDataParallel::NoSync::~NoSync() { fsdp_.sharder_->set_syncing(before_); }

}  // namespace bp::distributed
