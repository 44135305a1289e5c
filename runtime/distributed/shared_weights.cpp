#include "runtime/distributed/shared_weights.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "backplane/runtime/autograd.hpp"
#include "runtime/distributed/agreement.hpp"
#include "runtime/distributed/checksum.hpp"

namespace bp::distributed {
namespace {

// A weight as a rank describes it.
struct Copy {
  uint32_t rank = 0;
  std::string kind, checksum;
};
using Copies = std::map<std::string, std::vector<Copy>>;  // By the name of the weight.

bool is_part_of(const std::vector<std::shared_ptr<nn::Module>>& stages, const Tensor& tensor) {
  const auto has_it = [&](const std::shared_ptr<nn::Module>& stage) {
    const std::vector<Tensor> all = stage->parameters();
    return std::ranges::any_of(all, [&](const Tensor& t) { return t.impl() == tensor.impl(); });
  };
  return std::ranges::any_of(stages, has_it);
}

std::string own_problem(const SharedWeights::Given& given,
                        const std::vector<std::shared_ptr<nn::Module>>& stages) {
  for (size_t i = 0; i < given.size(); ++i) {
    const auto& [name, tensor] = given[i];
    if (name.empty() || name.find('\n') != std::string::npos) {
      return "shared weight " + std::to_string(i) + " has the name '" + name +
             "'; allowed: a text of one line";
    }
    if (!is_part_of(stages, tensor)) {
      return "shared weight '" + name +
             "' is no parameter of a stage of this rank; allowed: " + "parameters of its stages";
    }
    for (size_t k = 0; k < i; ++k) {
      if (given[k].first != name && given[k].second.impl() != tensor.impl()) continue;
      return "shared weight '" + name + "' is given twice; allowed: each name and tensor once";
    }
  }
  return "";
}

std::string describe(const SharedWeights::Given& given) {
  std::string text;
  for (const auto& [name, tensor] : given) {
    std::vector<char> bytes(tensor.size_bytes());
    tensor.detach().copy_to_host(bytes.data(), bytes.size());
    text += name + "\n" + dtype_text(tensor.dtype()) + " " + to_string(tensor.shape()) + "\n" +
            std::to_string(crc32c(bytes.data(), bytes.size())) + "\n";
  }
  return text;
}

Copies gather_copies(const SharedWeights::Given& given, const ProcessGroup& group) {
  Copies copies;
  const std::vector<std::string> texts = gather_texts(group, describe(given));
  for (uint32_t rank = 0; rank < texts.size(); ++rank) {
    std::istringstream lines(texts[rank]);
    std::string name;
    while (std::getline(lines, name)) {
      Copy copy{.rank = rank, .kind = {}, .checksum = {}};
      std::getline(lines, copy.kind);
      std::getline(lines, copy.checksum);
      copies[name].push_back(std::move(copy));
    }
  }
  return copies;
}

std::string difference(const Copy& copy, const Copy& first) {
  const std::string here = "on rank " + std::to_string(copy.rank);
  const std::string there = "on rank " + std::to_string(first.rank);
  if (copy.kind != first.kind) {
    return "is " + copy.kind + " " + here + " and " + first.kind + " " + there +
           "; allowed: one shape and dtype";
  }
  if (copy.checksum != first.checksum) {
    return "has other values " + here + " than " + there +
           "; allowed: equal values when the pipeline is made";
  }
  return "";
}

// Returns what is wrong with the copies of one weight, or "".
std::string problem_of(const std::vector<Copy>& copies) {
  if (copies.size() == 1) {
    return "is on rank " + std::to_string(copies[0].rank) + " alone; allowed: on two ranks or more";
  }
  for (const Copy& copy : copies) {
    std::string problem = difference(copy, copies[0]);
    if (!problem.empty()) return problem;
  }
  return "";
}

}  // namespace

std::string SharedWeights::problem_of(const Given& given,
                                      const std::vector<std::shared_ptr<nn::Module>>& stages,
                                      const ProcessGroup& group) {
  std::string problem = own_problem(given, stages);
  if (!problem.empty()) problem = bp::distributed::describe(group) + ": " + problem;
  problem = first_problem(group, problem);
  if (!problem.empty()) return problem;
  for (const auto& [name, copies] : gather_copies(given, group)) {
    problem = bp::distributed::problem_of(copies);
    if (!problem.empty()) return std::string("shared weight '").append(name) + "' " + problem;
  }
  return "";
}

SharedWeights::SharedWeights(const Given& given, const ProcessGroup& group) {
  std::map<std::string, Tensor> own(given.begin(), given.end());
  std::set<std::string> names;
  std::string text;
  for (const auto& [name, tensor] : own) text += name + "\n";
  for (const std::string& theirs : gather_texts(group, text)) {
    std::istringstream lines(theirs);
    std::string name;
    while (std::getline(lines, name)) names.insert(name);
  }
  for (const std::string& name : names) {
    const auto found = own.find(name);
    const std::optional<uint32_t> color =
        found == own.end() ? std::nullopt : std::optional<uint32_t>(0);
    const auto made = group.split(color, group.rank(), group.name() + ".shared." + name);
    if (made) weights_.push_back({.tensor = found->second, .group = *made, .earlier = {}});
  }
}

void SharedWeights::begin_step() {
  for (Weight& weight : weights_) {
    weight.earlier = weight.tensor.grad();
    weight.tensor.set_grad({});
  }
}

void SharedWeights::sum_gradients() {
  const NoGradGuard no_grad;
  std::vector<Tensor> sums;
  std::vector<Work> works;
  for (const Weight& weight : weights_) {
    const Tensor own = weight.tensor.grad();
    sums.push_back(own ? own.detach().clone() : zeros_like(weight.tensor.detach()));
    works.push_back(weight.group.all_reduce(sums.back()));
  }
  for (size_t i = 0; i < weights_.size(); ++i) {
    works[i].join();
    const Tensor earlier = std::exchange(weights_[i].earlier, {});
    weights_[i].tensor.set_grad(earlier ? earlier + sums[i] : sums[i]);
  }
}

void SharedWeights::abort() const {
  for (const Weight& weight : weights_) weight.group.abort();
}

bool SharedWeights::is_copy(const Tensor& parameter) const {
  return std::ranges::any_of(weights_, [&](const Weight& weight) {
    return weight.tensor.impl() == parameter.impl() && weight.group.rank() > 0;
  });
}

}  // namespace bp::distributed
