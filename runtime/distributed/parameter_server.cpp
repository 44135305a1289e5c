#include "backplane/runtime/distributed/parameter_server.hpp"

#include <algorithm>
#include <numeric>
#include <optional>

#include "backplane/runtime/autograd.hpp"
#include "backplane/runtime/error.hpp"
#include "runtime/distributed/agreement.hpp"
#include "runtime/distributed/parameter_service.hpp"
#include "runtime/distributed/parameter_worker.hpp"
#include "runtime/distributed/state_names.hpp"

namespace bp::distributed {
namespace {

[[noreturn]] void fail(const std::string& what) {
  throw Error(BP_INVALID_ARGUMENT, "ParameterServer: " + what);
}

std::string who(const ProcessGroup& group) { return "ParameterServer: " + describe(group); }

Named trainable(const nn::Module& module) {
  Named parameters = parameters_of(module);
  std::erase_if(parameters, [](const auto& entry) { return !entry.second.requires_grad(); });
  return parameters;
}

// ---- Checks of the arguments: each returns a problem, or "" ------------------------------------

std::string problem_of(const ParameterServerOptions& options, size_t parameter_count,
                       const ProcessGroup& group) {
  const uint32_t size = group.size();
  if (size < 2) return "the group has 1 rank; allowed: at least one worker and one server";
  if (options.servers == 0 || options.servers >= size) {
    return "servers is " + std::to_string(options.servers) + ", of " + std::to_string(size) +
           " ranks; allowed: 1 to " + std::to_string(size - 1);
  }
  if (options.servers > parameter_count) {
    return "servers is " + std::to_string(options.servers) + ", for " +
           std::to_string(parameter_count) +
           " parameters with a gradient; allowed: at most one server for each parameter";
  }
  const bool is_server = group.rank() >= size - options.servers;
  if (is_server && !options.make_optimizer) {
    return "rank " + std::to_string(group.rank()) +
           " serves and has no make_optimizer; allowed: a function that makes its optimizer";
  }
  return "";
}

std::string problem_of(const Named& parameters, const ProcessGroup& group) {
  for (const auto& [name, tensor] : parameters) {
    if (tensor.device() != group.device()) {
      return "parameter '" + name + "' is on " + tensor.device().name() +
             "; allowed: " + group.device().name() + ", the device of the group";
    }
    if (!group.supports(BP_COLLECTIVE_SEND, tensor.dtype()) ||
        !group.supports(BP_COLLECTIVE_RECEIVE, tensor.dtype())) {
      return "parameter '" + name + "' is " + dtype_text(tensor.dtype()) + ", which groups of '" +
             group.table_name() + "' do not send; allowed: dtypes that they send";
    }
  }
  return "";
}

void check(const std::shared_ptr<nn::Module>& module, const ProcessGroup& group,
           const ParameterServerOptions& options) {
  std::string problem = first_problem(
      group, module == nullptr ? "the module is a null pointer; allowed: a module" : "");
  if (!problem.empty()) fail(problem);
  problem = first_difference(group, "option",
                             "servers " + std::to_string(options.servers) + "\nstaleness " +
                                 std::to_string(options.staleness) + "\n");
  if (!problem.empty()) fail("the ranks have different options: " + problem);
  problem = first_difference(group, "parameter", describe(parameters_of(*module)));
  if (!problem.empty()) fail("the ranks have different models: " + problem);
  const Named parameters = trainable(*module);
  problem = problem_of(options, parameters.size(), group);
  if (problem.empty()) problem = problem_of(parameters, group);
  problem = first_problem(group, problem);
  if (!problem.empty()) fail(problem);
}

// ---- Who has what ------------------------------------------------------------------------------

// Returns the places of the parameters of each server, in order. From the largest to the smallest,
// each goes to the server that has the fewest bytes.
std::vector<std::vector<size_t>> share_out(const Named& parameters, uint32_t servers) {
  std::vector<size_t> order(parameters.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto bytes_of = [&](size_t i) { return parameters[i].second.size_bytes(); };
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return bytes_of(a) > bytes_of(b); });
  std::vector<std::vector<size_t>> shares(servers);
  std::vector<std::pair<uint64_t, size_t>> loads(servers);  // Bytes, and parameters.
  for (const size_t i : order) {
    const auto least = std::ranges::min_element(loads);
    *least = {least->first + bytes_of(i), least->second + 1};
    shares[static_cast<size_t>(least - loads.begin())].push_back(i);
  }
  for (std::vector<size_t>& share : shares) std::ranges::sort(share);
  return shares;
}

std::vector<Tensor> pick(const Named& parameters, const std::vector<size_t>& places) {
  std::vector<Tensor> tensors;
  tensors.reserve(places.size());
  for (const size_t i : places) tensors.push_back(parameters[i].second);
  return tensors;
}

// A group of two ranks, and the number of the other one among the servers or among the workers.
struct Pair {
  uint32_t peer = 0;
  ProcessGroup group;
};

// Makes a group for each worker and server, in which the server is rank 0. In each round of splits
// a rank is in one pair at most: server s meets worker s + round.
std::vector<Pair> make_pairs(const ProcessGroup& group, uint32_t workers, uint32_t servers) {
  const bool is_server = group.rank() >= workers;
  const uint32_t own = is_server ? group.rank() - workers : group.rank();
  const uint32_t peers = is_server ? workers : servers, rounds = std::max(workers, servers);
  std::vector<Pair> pairs;
  for (uint32_t round = 0; round < rounds; ++round) {
    const uint32_t peer = (is_server ? own + round : own + rounds - round) % rounds;
    std::optional<uint32_t> color;
    if (peer < peers) color = is_server ? own : peer;
    const uint32_t worker = is_server ? peer : own, server = is_server ? own : peer;
    try {
      const auto made = group.split(
          color, is_server ? 0 : 1,
          group.name() + "/server " + std::to_string(server) + "/worker " + std::to_string(worker));
      if (made) pairs.push_back({peer, *made});
    } catch (const Error& e) {
      const uint32_t rank = is_server ? peer : workers + peer;
      throw Error(e.code(), who(group) + " could not join " +
                                (color ? "rank " + std::to_string(rank) : "the others") + ": " +
                                e.what());
    }
  }
  std::ranges::sort(pairs, {}, &Pair::peer);
  return pairs;
}

// Returns what make_optimizer gives on a server. If it fails on one of them, all ranks throw.
std::shared_ptr<Optimizer> make_optimizer(const ParameterServerOptions& options,
                                          const std::vector<Tensor>& parameters,
                                          const ProcessGroup& group) {
  std::shared_ptr<Optimizer> optimizer;
  std::string problem;
  try {
    if (!parameters.empty()) {
      optimizer = options.make_optimizer(parameters);
      if (optimizer == nullptr) problem = "make_optimizer gave none; allowed: an optimizer";
    }
  } catch (const std::exception& e) {
    problem = std::string("make_optimizer failed: ") + e.what();
  }
  if (!problem.empty()) problem.insert(0, "rank " + std::to_string(group.rank()) + ": ");
  problem = first_problem(group, problem);
  if (!problem.empty()) fail(problem);
  return optimizer;
}

}  // namespace

ParameterServer::ParameterServer(std::shared_ptr<nn::Module> module, const ProcessGroup& group,
                                 const ParameterServerOptions& options)
    : module_(std::move(module)), group_(group), options_(options) {
  const NoGradGuard no_grad;
  check(module_, group_, options_);
  const Named parameters = trainable(*module_);
  for (const auto& [name, tensor] : parameters) names_.push_back(name);
  const std::vector<std::vector<size_t>> shares = share_out(parameters, options_.servers);
  const bool serves = group_.rank() >= worker_count();
  if (serves) served_ = shares[group_.rank() - worker_count()];
  const std::vector<Tensor> own = pick(parameters, served_);
  std::shared_ptr<Optimizer> optimizer = make_optimizer(options_, own, group_);
  broadcast_parameters(group_, parameters_of(*module_));
  std::vector<Pair> pairs = make_pairs(group_, worker_count(), options_.servers);
  if (!serves) {
    std::vector<LinkToServer> servers;
    for (const Pair& pair : pairs) {
      const std::vector<Tensor> theirs = pick(parameters, shares[pair.peer]);
      servers.push_back({.rank = worker_count() + pair.peer,
                         .parameters = theirs,
                         .link = std::make_unique<ParameterLink>(pair.group, theirs),
                         .values = {}});
    }
    worker_ = std::make_unique<ParameterWorker>(who(group_), std::move(servers));
    return;
  }
  std::vector<std::unique_ptr<ParameterLink>> links;
  links.reserve(pairs.size());
  for (const Pair& pair : pairs) links.push_back(std::make_unique<ParameterLink>(pair.group, own));
  service_ = std::make_unique<ParameterService>(
      ParameterService::Settings{.who = who(group_),
                                 .parameters = own,
                                 .staleness = options_.staleness,
                                 .optimizer = std::move(optimizer),
                                 .before_step = options_.before_step},
      std::move(links));
}

ParameterServer::~ParameterServer() = default;

ParameterService& ParameterServer::service(const char* call) const {
  if (service_ != nullptr) return *service_;
  throw Error(BP_INVALID_ARGUMENT,
              who(group_) + ": " + call + " is called on a worker; allowed: on a server");
}

ParameterWorker& ParameterServer::worker(const char* call) const {
  if (worker_ != nullptr) return *worker_;
  throw Error(BP_INVALID_ARGUMENT,
              who(group_) + ": " + call + " is called on a server; allowed: on a worker");
}

void ParameterServer::push() { worker("push()").push(); }
void ParameterServer::pull() { worker("pull()").pull(); }
void ParameterServer::finish() { worker("finish()").finish(); }
void ParameterServer::serve() { service("serve()").serve(); }

ParameterServerCounters ParameterServer::counters() const {
  return service("counters()").counters();
}

std::vector<std::string> ParameterServer::served_names() const {
  std::vector<std::string> names;
  for (const size_t i : served_) names.push_back(names_[i]);
  return names;
}

std::vector<Piece> ParameterServer::pieces() const {
  TensorMap state = module_->state_dict();
  if (is_server()) {
    const std::vector<std::string> own = served_names();
    std::erase_if(
        state, [&](const auto& entry) { return std::ranges::find(own, entry.first) == own.end(); });
  }
  return pieces_of(state);
}

std::vector<Piece> ParameterServer::optimizer_pieces(const TensorMap& state) const {
  return place_state(pieces_of(state), names_, served_);
}

}  // namespace bp::distributed
