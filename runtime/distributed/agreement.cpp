#include "runtime/distributed/agreement.hpp"

#include <algorithm>
#include <sstream>

#include "backplane/runtime/autograd.hpp"

namespace bp::distributed {
namespace {

// Submits the broadcast, and returns what rank `root` has.
std::vector<int64_t> broadcast_numbers(const ProcessGroup& group, const std::vector<int64_t>& own,
                                       uint32_t root) {
  const Tensor numbers = from_host(own, {static_cast<int64_t>(own.size())}, group.device());
  const Work work = group.broadcast(numbers, root);
  work.wait();
  work.join();
  return numbers.to_vector<int64_t>();
}

// Returns the first difference between the lines of this rank and of rank 0; "" if there is none.
std::string difference(const std::string& line, const std::string& own, const std::string& of_first,
                       uint32_t rank) {
  std::istringstream ours(own), theirs(of_first);
  for (size_t i = 0;; ++i) {
    std::string our_line, their_line;
    const bool has_ours = static_cast<bool>(std::getline(ours, our_line));
    const bool has_theirs = static_cast<bool>(std::getline(theirs, their_line));
    if (!has_ours && !has_theirs) return "";
    if (our_line == their_line) continue;
    return line + " " + std::to_string(i) + " is " + (has_ours ? our_line : "missing") +
           " on rank " + std::to_string(rank) + " and " + (has_theirs ? their_line : "missing") +
           " on rank 0";
  }
}

}  // namespace

Named parameters_of(const nn::Module& module) {
  Named parameters;
  for (auto& entry : module.named_parameters()) {
    const auto is_it = [&](const auto& other) {
      return other.second.impl() == entry.second.impl();
    };
    if (std::ranges::none_of(parameters, is_it)) parameters.push_back(std::move(entry));
  }
  return parameters;
}

std::string describe(const Named& parameters) {
  std::string text;
  for (const auto& [name, tensor] : parameters) {
    text += "'" + name + "' " + dtype_text(tensor.dtype()) + " " + to_string(tensor.shape()) +
            (tensor.requires_grad() ? "\n" : ", without gradient\n");
  }
  return text;
}

std::string describe(const ProcessGroup& group) {
  return "rank " + std::to_string(group.rank()) + " of " + std::to_string(group.size()) +
         " of the group '" + group.name() + "'";
}

std::vector<int64_t> gather_numbers(const ProcessGroup& group, int64_t own) {
  const NoGradGuard no_grad;
  const Tensor all = empty({int64_t{group.size()}}, BP_I64, group.device());
  const Work work = group.all_gather(all, from_host<int64_t>({own}, {1}, group.device()));
  work.wait();
  work.join();
  return all.to_vector<int64_t>();
}

std::string broadcast_text(const ProcessGroup& group, const std::string& own, uint32_t root) {
  const NoGradGuard no_grad;
  const int64_t length = broadcast_numbers(group, {static_cast<int64_t>(own.size())}, root)[0];
  std::vector<uint8_t> bytes(own.begin(), own.end());
  bytes.resize(static_cast<size_t>(length));
  const Tensor text = from_host(bytes, {length}, group.device());
  const Work work = group.broadcast(text, root);
  work.wait();
  work.join();
  bytes = text.to_vector<uint8_t>();
  return {bytes.begin(), bytes.end()};
}

std::string first_problem(const ProcessGroup& group, const std::string& own) {
  const std::vector<int64_t> told = gather_numbers(group, own.empty() ? 0 : 1);
  const auto first = std::ranges::find(told, 1);
  if (first == told.end()) return "";
  return broadcast_text(group, own, static_cast<uint32_t>(first - told.begin()));
}

std::string first_difference(const ProcessGroup& group, const std::string& line,
                             const std::string& own) {
  const std::string of_first = broadcast_text(group, own, 0);
  return first_problem(group, difference(line, own, of_first, group.rank()));
}

std::vector<std::string> gather_texts(const ProcessGroup& group, const std::string& own) {
  const NoGradGuard no_grad;
  const std::vector<int64_t> lengths = gather_numbers(group, static_cast<int64_t>(own.size()));
  const int64_t longest = std::max<int64_t>(std::ranges::max(lengths), 1);
  std::vector<uint8_t> bytes(own.begin(), own.end());
  bytes.resize(static_cast<size_t>(longest));
  const Tensor all = empty({group.size(), longest}, BP_U8, group.device());
  const Work work = group.all_gather(all, from_host(bytes, {longest}, group.device()));
  work.wait();
  work.join();
  bytes = all.to_vector<uint8_t>();
  std::vector<std::string> texts;
  for (size_t rank = 0; rank < lengths.size(); ++rank) {
    const auto* const begin = bytes.data() + rank * static_cast<size_t>(longest);
    texts.emplace_back(begin, begin + lengths[rank]);
  }
  return texts;
}

int64_t largest_of(const ProcessGroup& group, int64_t own) {
  return std::ranges::max(gather_numbers(group, own));
}

void broadcast_parameters(const ProcessGroup& group, const Named& parameters, uint32_t root) {
  const NoGradGuard no_grad;
  std::vector<Tensor> copies;
  std::vector<Collective> calls;
  for (const auto& [name, tensor] : parameters) {
    if (tensor.numel() == 0) continue;
    copies.push_back(tensor.detach().contiguous());
    calls.push_back(Collective::broadcast(copies.back(), root));
  }
  if (calls.empty()) return;
  group.submit(calls).join();
  size_t next = 0;
  for (const auto& [name, tensor] : parameters) {
    if (tensor.numel() == 0) continue;
    const Tensor& copy = copies[next++];
    if (!tensor.is_contiguous()) tensor.detach().copy_from(copy);
  }
}

}  // namespace bp::distributed
