// Mutants of the ops of language models: gates, caches of keys and values, attention over blocks,
// and mixtures of experts. Each makes a mistake that kernels of its op may make.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "backplane/ops.h"
#include "conformance/mutants/mistakes.hpp"

namespace bp::mutants {
namespace {

// ---- Gates --------------------------------------------------------------------------------------

// Takes the first half of a tensor for `up`, and the second one for the gate.
bp_status exchange_halves(const Call& call, const bp_swiglu_args& args) {
  bp_swiglu_args frame = args;
  std::swap(frame.gate, frame.up);
  return call.run(&frame);
}

// Takes the gelu of tanh, which many models have.
bp_status gate_by_tanh(const Call& call, const bp_geglu_args& frame) {
  if (frame.gate->dtype != BP_F32) return call.run(&frame);
  const Values gate(call, *frame.gate), up(call, *frame.up);
  Values y(call, *frame.y);
  if (const bp_status status = first_failure({&gate, &up, &y}); status != BP_OK) return status;
  for (size_t i = 0; i < y.size(); ++i) {
    const double x = gate[i], root = std::sqrt(2 / std::numbers::pi);
    y.set(i, x * 0.5 * (1 + std::tanh(root * (x + 0.044715 * x * x * x))) * up[i]);
  }
  return y.write();
}

// ---- kv_cache_append ----------------------------------------------------------------------------

// Launches with the slots that `edit` has changed.
template <typename Edit>
bp_status append_to(const Call& call, const bp_kv_cache_append_args& args, Edit edit) {
  return with_edited(call, *args.slots, edit, [&](const bp_tensor* slots) {
    bp_kv_cache_append_args frame = args;
    frame.slots = slots;
    return call.run(&frame);
  });
}

// Takes the slots of the first sequence for all of them.
bp_status append_to_first_sequence(const Call& call, const bp_kv_cache_append_args& args) {
  const uint32_t rank = args.slots->ndim;
  const auto tokens = rank == 0 ? 1 : static_cast<size_t>(args.slots->shape[rank - 1]);
  return append_to(call, args, [=](Values& slots) {
    for (size_t i = tokens; i < slots.size(); ++i) slots.set(i, slots[i % tokens]);
  });
}

int64_t rows_of(const bp_tensor& cache) { return cache.shape[0] * cache.shape[1]; }

// Counts negative slots from the end of the cache.
bp_status append_from_the_end(const Call& call, const bp_kv_cache_append_args& args) {
  const auto rows = static_cast<double>(rows_of(*args.cache));
  return append_to(call, args, [=](Values& slots) {
    for (size_t i = 0; i < slots.size(); ++i) {
      if (slots[i] < 0 && slots[i] + rows >= 0) slots.set(i, slots[i] + rows);
    }
  });
}

// Writes the new rows alone, also where y is not the memory of the cache.
bp_status copy_no_cache(const Call& call, const bp_kv_cache_append_args& args) {
  const auto rows = static_cast<size_t>(rows_of(*args.cache));
  if (args.y->buffer == args.cache->buffer || rows == 0) return call.run(&args);
  const Values slots(call, *args.slots);
  std::vector<bool> is_new(rows);
  for (size_t i = 0; i < slots.size(); ++i) {
    const double slot = slots[i];
    if (slot >= 0 && slot < static_cast<double>(rows)) is_new[static_cast<size_t>(slot)] = true;
  }
  const auto width = static_cast<size_t>(args.y->shape[2] * args.y->shape[3]);
  return leave_elements(call, &args, *args.y, [&](size_t i) { return !is_new[i / width]; });
}

// ---- paged_attention ----------------------------------------------------------------------------

// Reads the row behind the last key, if its block has one.
bp_status read_one_more_key(const Call& call, const bp_paged_attention_args& args) {
  const int64_t size = args.k_cache->shape[1];
  const auto edit = [=](Values& lengths) {
    for (size_t i = 0; i < lengths.size(); ++i) {
      const auto length = static_cast<int64_t>(lengths[i]);
      if (length > 0 && length % size != 0) lengths.set(i, lengths[i] + 1);
    }
  };
  return with_edited(call, *args.lengths, edit, [&](const bp_tensor* lengths) {
    bp_paged_attention_args frame = args;
    frame.lengths = lengths;
    return call.run(&frame);
  });
}

// Sees one key more to the left.
bp_status widen_window(const Call& call, const bp_paged_attention_args& args) {
  bp_paged_attention_args frame = args;
  if (frame.window_left != 0 && frame.window_left != INT64_MAX) ++frame.window_left;
  return call.run(&frame);
}

// Lets query head h read key head h % key heads.
bp_status interleave_key_heads(const Call& call, const bp_paged_attention_args& args) {
  const int64_t key_heads = args.k_cache->shape[2], heads = args.q->shape[1];
  for (int64_t head = 0; head < key_heads; ++head) {
    View q(*args.q), y(*args.y), k(*args.k_cache), v(*args.v_cache);
    for (View* const view : {&q, &y}) {
      view->advance(head * view->stride(1));
      view->extent(1) = heads / key_heads;
      view->stride(1) *= key_heads;
    }
    for (View* const view : {&k, &v}) {
      view->advance(head * view->stride(2));
      view->extent(2) = 1;
    }
    bp_paged_attention_args frame = args;
    frame.q = q.get();
    frame.y = y.get();
    frame.k_cache = k.get();
    frame.v_cache = v.get();
    if (const bp_status status = call.run(&frame); status != BP_OK) return status;
  }
  return BP_OK;
}

// Returns whether the offsets have no range in which the row lies.
bool is_of_nobody(const Values& offsets, size_t row) {
  const auto at = static_cast<double>(row);
  return offsets.size() == 0 || at < offsets[0] || at >= offsets[offsets.size() - 1];
}

// Leaves the rows of no sequence as they are.
bp_status leave_padding(const Call& call, const bp_paged_attention_args& args) {
  const Values offsets(call, *args.offsets);
  const auto width = static_cast<size_t>(args.y->shape[1] * args.y->shape[2]);
  return leave_elements(call, &args, *args.y,
                        [&](size_t i) { return is_of_nobody(offsets, i / width); });
}

// ---- Mixtures of experts ------------------------------------------------------------------------

// Lets each expert take one token more than it has room for.
bp_status exceed_capacity(const Call& call, const bp_moe_route_args& args) {
  bp_moe_route_args frame = args;
  if (frame.capacity != 0) ++frame.capacity;
  return call.run(&frame);
}

// Computes the weights before tokens are dropped, so that these keep theirs.
bp_status weigh_dropped(const Call& call, const bp_moe_route_args& args) {
  if (const bp_status status = call.run(&args); status != BP_OK) return status;
  bp_moe_route_args frame = args;
  frame.experts = frame.counts = frame.dropped = nullptr;
  frame.capacity = 0;
  return call.run(&frame);
}

// Does not divide the scores of sigmoid by their sum.
bp_status renormalize_softmax_alone(const Call& call, const bp_moe_route_args& args) {
  bp_moe_route_args frame = args;
  if (frame.scoring == BP_MOE_ROUTE_SCORING_SIGMOID) frame.renormalize = 0;
  return call.run(&frame);
}

// Chooses the last of equal experts, as a search from the end does.
bp_status choose_the_last(const Call& call, const bp_moe_route_args& args) {
  View x(*args.x), choice(args.choice != nullptr ? *args.choice : *args.x);
  x.reverse(1);
  choice.reverse(1);
  bp_moe_route_args frame = args;
  frame.x = x.get();
  if (args.choice != nullptr) frame.choice = choice.get();
  View counts(args.counts != nullptr ? *args.counts : *args.x);
  if (args.counts != nullptr) {
    counts.reverse(0);
    frame.counts = counts.get();
  }
  if (const bp_status status = call.run(&frame); status != BP_OK) return status;
  if (args.experts == nullptr) return BP_OK;
  Values experts(call, *args.experts);
  const auto last = static_cast<double>(args.x->shape[1] - 1);
  for (size_t i = 0; i < experts.size(); ++i) {
    if (experts[i] >= 0) experts.set(i, last - experts[i]);
  }
  return experts.write();
}

// Puts the tokens of an expert in the order from the last one to the first.
bp_status permute_backwards(const Call& call, const bp_moe_permute_args& args) {
  View x(*args.x), experts(*args.experts);
  View places(args.places != nullptr ? *args.places : *args.experts);
  x.reverse(0);
  for (View* const view : {&experts, &places}) {
    view->reverse(0);
    view->reverse(1);
  }
  bp_moe_permute_args frame = args;
  frame.x = x.get();
  frame.experts = experts.get();
  if (args.places != nullptr) frame.places = places.get();
  return call.run(&frame);
}

// Gives the ends of the experts in place of the beginnings.
bp_status give_ends(const Call& call, const bp_moe_permute_args& frame) {
  if (const bp_status status = call.run(&frame); status != BP_OK) return status;
  if (frame.offsets == nullptr) return BP_OK;
  Values offsets(call, *frame.offsets);
  for (size_t i = 0; i + 1 < offsets.size(); ++i) offsets.set(i, offsets[i + 1]);
  return offsets.write();
}

// Adds the nearest row for a place that is out of range.
bp_status clamp_places(const Call& call, const bp_moe_unpermute_args& args) {
  const double last = static_cast<double>(args.x->shape[0]) - 1;
  const auto edit = [=](Values& places) {
    for (size_t i = 0; i < places.size() && last >= 0; ++i) {
      places.set(i, std::clamp(places[i], 0.0, last));
    }
  };
  return with_edited(call, *args.places, edit, [&](const bp_tensor* places) {
    bp_moe_unpermute_args frame = args;
    frame.places = places;
    return call.run(&frame);
  });
}

// Takes the matrices one after the other, and does not count a group without rows.
bp_status skip_empty_groups(const Call& call, const bp_grouped_matmul_args& args) {
  const auto edit = [](Values& offsets) {
    size_t kept = 0;
    for (size_t i = 1; i < offsets.size(); ++i) {
      if (offsets[i] != offsets[kept]) offsets.set(++kept, offsets[i]);
    }
    const double end = offsets.size() == 0 ? 0 : offsets[kept];
    for (size_t i = kept; i < offsets.size(); ++i) offsets.set(i, end);
  };
  return with_edited(call, *args.offsets, edit, [&](const bp_tensor* offsets) {
    bp_grouped_matmul_args frame = args;
    frame.offsets = offsets;
    return call.run(&frame);
  });
}

// Leaves the rows of no group as they are.
bp_status leave_rows_of_no_group(const Call& call, const bp_grouped_matmul_args& args) {
  const Values offsets(call, *args.offsets);
  const auto width = static_cast<size_t>(args.y->shape[1]);
  return leave_elements(call, &args, *args.y,
                        [&](size_t i) { return is_of_nobody(offsets, i / width); });
}

// Leaves the gradients of groups without rows as they are.
bp_status leave_empty_groups(const Call& call, const bp_grouped_matmul_backward_b_args& args) {
  const Values offsets(call, *args.offsets);
  const auto size = static_cast<size_t>(args.grad_b->shape[1] * args.grad_b->shape[2]);
  return leave_elements(call, &args, *args.grad_b, [&](size_t i) {
    const size_t group = i / size;
    return offsets[group + 1] == offsets[group];
  });
}

constexpr Mistake kMistakes[] = {
    {"swiglu", BP_OP_SWIGLU, on_frame<exchange_halves>},
    {"geglu", BP_OP_GEGLU, on_frame<gate_by_tanh>},
    {"kv_sequence", BP_OP_KV_CACHE_APPEND, on_frame<append_to_first_sequence>},
    {"kv_negative", BP_OP_KV_CACHE_APPEND, on_frame<append_from_the_end>},
    {"kv_copy", BP_OP_KV_CACHE_APPEND, on_frame<copy_no_cache>},
    {"paged_length", BP_OP_PAGED_ATTENTION, on_frame<read_one_more_key>},
    {"paged_window", BP_OP_PAGED_ATTENTION, on_frame<widen_window>},
    {"paged_heads", BP_OP_PAGED_ATTENTION, on_frame<interleave_key_heads>},
    {"paged_padding", BP_OP_PAGED_ATTENTION, on_frame<leave_padding>},
    {"route_capacity", BP_OP_MOE_ROUTE, on_frame<exceed_capacity>},
    {"route_dropped", BP_OP_MOE_ROUTE, on_frame<weigh_dropped>},
    {"route_shares", BP_OP_MOE_ROUTE, on_frame<renormalize_softmax_alone>},
    {"route_ties", BP_OP_MOE_ROUTE, on_frame<choose_the_last>},
    {"permute_order", BP_OP_MOE_PERMUTE, on_frame<permute_backwards>},
    {"permute_offsets", BP_OP_MOE_PERMUTE, on_frame<give_ends>},
    {"unpermute", BP_OP_MOE_UNPERMUTE, on_frame<clamp_places>},
    {"grouped_empty", BP_OP_GROUPED_MATMUL, on_frame<skip_empty_groups>},
    {"grouped_rest", BP_OP_GROUPED_MATMUL, on_frame<leave_rows_of_no_group>},
    {"grouped_gradient", BP_OP_GROUPED_MATMUL_BACKWARD_B, on_frame<leave_empty_groups>},
};

// 63: gates, caches, attends or routes wrongly.
constexpr Mutant kTable[] = {
    {.id = "63",
     .ops = {},
     .launch = make_mistake<kMistakes>,
     .extra_workspace_bytes = kCopyBytes,
     .replaces = has_row<kMistakes>},
};

}  // namespace

std::span<const Mutant> language_mutants() { return kTable; }

}  // namespace bp::mutants
