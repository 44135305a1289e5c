#include "registry/dispatch/realigning.hpp"

#include <array>
#include <cstddef>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "registry/services/decompose.hpp"
#include "registry/services/service_kernels.hpp"

namespace bp::core {
namespace {

using services::Evaluator;

// One call, and the copies of its tensors.
class Copies {
 public:
  Copies(Evaluator& e, uint64_t alignment) : e_(e), alignment_(alignment) {}

  // Replaces the tensors of `frame` that need a copy.
  void replace(const TensorArgument& argument, std::byte* frame) {
    if (!argument.is_list()) {
      const bp_tensor* const tensor = place(argument.kind, tensor_at(frame, argument));
      std::memcpy(frame + argument.offset, &tensor, sizeof(void*));
      return;
    }
    const TensorList given = list_at(frame, argument);
    std::vector<const bp_tensor*>& items = lists_.emplace_back();
    for (uint64_t i = 0; i < given.count; ++i) {
      items.push_back(place(argument.kind, given.items[i]));
    }
    const bp_tensor* const* const data = items.data();
    std::memcpy(frame + argument.offset, &data, sizeof(data));
  }

  void store_results() {
    for (const auto& [own, given] : results_) e_.store(own, given);
  }

 private:
  const bp_tensor* place(Kind kind, const bp_tensor* given) {
    if (given == nullptr || given->byte_offset % alignment_ == 0) return given;
    const bool is_output = kind == Kind::out || kind == Kind::out_opt || kind == Kind::out_list;
    const bool is_written = is_output || kind == Kind::inout || kind == Kind::inout_list;
    const bp_tensor* const own =
        is_output ? e_.make_like(*given, given->dtype) : e_.cast(given, given->dtype);
    if (is_written) results_.emplace_back(own, given);
    return own;
  }

  Evaluator& e_;
  const uint64_t alignment_;
  std::deque<std::vector<const bp_tensor*>> lists_;
  std::vector<std::pair<const bp_tensor*, const bp_tensor*>> results_;  // A copy, the caller's.
};

void run(const Target& target, Evaluator& e, const OpRow& row, const void* args) {
  alignas(8) std::array<std::byte, kMaxFrameBytes> frame;
  std::memcpy(frame.data(), args, row.frame_size_bytes);
  Copies copies(e, services::offset_alignment(target));
  for (uint32_t i = 0; i < row.tensor_count; ++i) copies.replace(row.tensors[i], frame.data());
  e.launch(row.op, frame.data());
  copies.store_results();
}

bp_status launch(const bp_kernel* self, const bp_launch* launch, const void* args) {
  const auto& row = *static_cast<const OpRow*>(self->state);
  return services::evaluate(*launch, self->name, [&](Evaluator& e) {
    Target& target = impl(services::target_of(*launch));
    run(target, e, row, args);
    if (launch->stream == nullptr) return;  // It was a question.
    target.counts[row.index].realigned.fetch_add(1, std::memory_order_relaxed);
  });
}

}  // namespace

std::string offset_refusal(const Target& target, const OpRow& row, const Key& key) {
  if (row.op == BP_OP_COPY) return "";
  const uint64_t alignment = services::offset_alignment(target);
  for (uint32_t i = 0; i < row.tensor_count; ++i) {
    const Fact fact = key.fact(i);
    if (!is_given(fact) || alignment_of(fact) >= alignment) continue;
    return std::string(row.tensors[i].name) + ": its byte offset is no multiple of " +
           std::to_string(alignment) + ", which the heap asks for";
  }
  return "";
}

const bp_kernel* realigning(const OpRow& row) {
  static services::ServiceKernels kernels("realigned", launch);
  return kernels.of(row);
}

}  // namespace bp::core
