// Asynchronous training with a parameter server: some ranks keep the parameters, and the others
// compute gradients, push them, and pull parameters, each at its own pace within a bound.
//
//   bd::ParameterServer server(model, group, {
//       .servers = 1,
//       .staleness = 4,
//       .make_optimizer = [](const std::vector<bp::Tensor>& parameters) {
//         return std::make_shared<bp::AdamW>(parameters);
//       }});
//   if (server.is_server()) {
//     server.serve();                      // Returns when every worker has called finish().
//   } else {
//     for (const auto& batch : batches) {  // Workers may have different numbers of batches.
//       for (const bp::Tensor& tensor : model->parameters()) tensor.set_grad({});
//       loss_of((*model)(batch)).backward();
//       server.push();                     // Sends the gradients.
//       load_next_batch();                 // Newer parameters arrive meanwhile.
//       server.pull();                     // The model has them now.
//     }
//     server.finish();                     // The bound no longer counts this worker.
//   }
//
// The last `servers` ranks of the group serve, and the others work. A parameter lies on one server.
// The parameters are shared out by bytes: from the largest to the smallest, each goes to the server
// that has the fewest bytes. A server applies each push at once, as one step of its optimizer
// (Li et al., "Scaling Distributed Machine Learning with the Parameter Server", OSDI 2014).
//
// The staleness bound is that of Ho et al., "More Effective Distributed ML via a Stale Synchronous
// Parallel Parameter Server", NIPS 2013. A worker that has pushed n steps may begin the next one
// when each worker that has not finished has pushed at least n - staleness steps. So a worker is at
// most `staleness` steps ahead of the slowest one, and what it pulls then has at least the first
// n - staleness steps of each other worker. With a bound of 0 the workers go in lockstep.
//
// Rules for everything here, unless it says otherwise:
//   Threads    One thread at a time uses a ParameterServer and its model. While serve() runs, it
//              has a thread for each worker, which only waits for messages. The optimizer and
//              `before_step` run on the thread that called serve().
//   Blocking   The constructor, pull(), finish() and serve() wait for other ranks. push() does not.
//   Errors     Throws bp::Error. A step of a worker must take less than the timeout of the group,
//              and a server must answer within half of it. If a rank is gone or late, those that
//              wait for it throw BP_TIMEOUT or BP_ABORTED and name it, and tell the others, which
//              throw the same sentence when they next wait. serve() then takes at most one more
//              timeout. After a failure a ParameterServer can only be destroyed. The group itself
//              stays usable.
//   Ownership  It shares the model, and has groups of its own, one for each worker and server. A
//              worker that is destroyed before finish() tells the servers, and serve() throws.
//   Gradients  A push has the gradients of the parameters that have one. The optimizer does not
//              change the other parameters. Gradients of workers are not averaged: each push is a
//              whole step, so n workers take n times as many steps as one.
//   Bits       One worker gets, in every bit, what it would get with the optimizer on its own
//              device. With a staleness of 0 each server applies the pushes of a step in the order
//              of the ranks, so that the result is the same in every run, and with any number of
//              servers. Otherwise it depends on the order in which pushes arrive.
//   Memory     A worker has room for its model, and once more for what it sends and receives. A
//              server has room for the model, for the state of the optimizer of its part, for its
//              part once more for each worker, and for copies of its part that are on their way.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backplane/runtime/distributed/pieces.hpp"
#include "backplane/runtime/distributed/process_group.hpp"
#include "backplane/runtime/nn.hpp"
#include "backplane/runtime/optim.hpp"

namespace bp::distributed {

// What a server is about to apply.
struct PushedStep {
  uint32_t rank = 0;  // Of the worker, in the group.
  uint64_t step = 0;  // Of this worker since the constructor, from 1.
};

struct ParameterServerOptions {
  uint32_t servers = 1;    // From 1 to one less than the ranks, and at most one for each parameter.
  uint64_t staleness = 0;  // UINT64_MAX: no bound.
  // Makes the optimizer of a server for the parameters that it serves. Only servers need and call
  // it, once.
  std::function<std::shared_ptr<Optimizer>(const std::vector<Tensor>& parameters)> make_optimizer;
  // Runs on a server before each step of its optimizer, such as to set a learning rate. May be
  // empty. What it throws ends serve() and all workers.
  std::function<void(const PushedStep&)> before_step;
};

// What a server has done since it was made.
struct ParameterServerCounters {
  std::vector<uint64_t> steps;  // Pushes that were applied, by the rank of the worker.
  uint64_t largest_lead = 0;    // The most steps that a worker was ahead when it began a step.
  uint64_t held_back = 0;       // Pushes whose worker had to wait, because of the bound.
};

class ParameterService;
class ParameterWorker;

class ParameterServer {
 public:
  // Checks that all ranks have the same options and parameters of the same names, shapes and
  // dtypes, and copies the values of rank 0 to the other ranks. If something differs, every rank
  // throws Error, which names the first difference. Every rank of the group calls it.
  ParameterServer(std::shared_ptr<nn::Module> module, const ProcessGroup& group,
                  const ParameterServerOptions& options);
  ~ParameterServer();
  ParameterServer(const ParameterServer&) = delete;
  ParameterServer& operator=(const ParameterServer&) = delete;

  bool is_server() const { return service_ != nullptr; }
  uint32_t worker_count() const { return group_.size() - options_.servers; }  // Ranks from 0.

  // ---- On a worker ----------------------------------------------------------------------------

  // Sends the gradients of all parameters to their servers, and asks for newer parameters. The
  // gradients may change as soon as push() returns. Throws if no parameter has a gradient.
  void push();

  // Waits for the parameters that the last push() asked for, and puts them into the model.
  void pull();

  // Says that this worker has no more batches, waits until all workers have said so, however long
  // this takes, and puts the parameters behind the last push into the model. So all workers have
  // equal parameters then. Pulls first if the last push() was not pulled. A worker may push again
  // later, in the next serve().
  void finish();

  // ---- On a server ----------------------------------------------------------------------------

  // Serves until all workers have called finish(). The parameters of module() that this server has
  // are then the newest ones; its others are old. All ranks may make calls of the group between
  // serve() and the next one, as for a checkpoint.
  void serve();

  ParameterServerCounters counters() const;  // Not while serve() runs.

  // ---- On any rank ----------------------------------------------------------------------------

  // Returns the names of the parameters that this server has, in the order in which its optimizer
  // has them. None on a worker.
  std::vector<std::string> served_names() const;

  // Return what this rank has of the model and of the state of the optimizer, for checkpoints by
  // shard, behind finish() and serve(). The names and numbers are those of training on one device.
  // A worker has the whole model, and no state of an optimizer: it gives an empty one. To load, all
  // ranks read the same checkpoint into their pieces.
  std::vector<Piece> pieces() const;
  std::vector<Piece> optimizer_pieces(const TensorMap& state) const;

  nn::Module& module() const { return *module_; }
  const ProcessGroup& group() const { return group_; }

 private:
  ParameterService& service(const char* call) const;
  ParameterWorker& worker(const char* call) const;

  const std::shared_ptr<nn::Module> module_;
  const ProcessGroup group_;
  const ParameterServerOptions options_;
  std::vector<std::string> names_;             // Of all parameters that are served.
  std::vector<size_t> served_;                 // Places in names_ of those that this server has.
  std::unique_ptr<ParameterService> service_;  // On a server.
  std::unique_ptr<ParameterWorker> worker_;    // On a worker.
};

}  // namespace bp::distributed
