// Weights that stages on several ranks of a pipeline share. Each of these ranks has a copy. They
// start equal, and get the sum of the gradients of all copies, so that they stay equal.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backplane/runtime/distributed/process_group.hpp"
#include "backplane/runtime/nn.hpp"

namespace bp::distributed {

class SharedWeights {
 public:
  using Given = std::vector<std::pair<std::string, Tensor>>;

  // `given` are those of this rank. Every rank of `group` calls it. Returns what is wrong on some
  // rank, or what differs between two ranks, on all ranks alike; "" if nothing.
  static std::string problem_of(const Given& given,
                                const std::vector<std::shared_ptr<nn::Module>>& stages,
                                const ProcessGroup& group);

  // Makes a group for each weight. Every rank of `group` calls it, if there is no problem.
  SharedWeights(const Given& given, const ProcessGroup& group);

  void begin_step();     // Puts the gradients of earlier steps aside.
  void sum_gradients();  // Adds the gradients of this step over the ranks, and the earlier ones.
  void abort() const;

  // Returns whether a rank before this one has a copy of `parameter`.
  bool is_copy(const Tensor& parameter) const;

 private:
  struct Weight {
    Tensor tensor;
    ProcessGroup group;
    Tensor earlier;  // The gradient of earlier steps. Empty: none.
  };
  std::vector<Weight> weights_;  // By name.
};

}  // namespace bp::distributed
