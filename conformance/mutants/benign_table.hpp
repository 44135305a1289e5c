// The benign variants: right backends that are unusual. No case may fail on them, with any seed.
#pragma once

#include "conformance/mutants/kill_table.hpp"

namespace bp::conformance {

// The cases of ops that differ most in what they ask of a kernel's claims.
#define BP_OPS                                                                               \
  "op.add.*:op.softmax.f32.*:op.matmul.f32.*:op.sum.f32.*:op.layer_norm.f32.*:op.copy.f32.*" \
  ":op.linear.f16.*:op.gather.f32.*:op.sdpa.f32.*:op.sgd_step.f32.*:kernel.*"
#define BP_TABLES "memory.*:stream.*:event.*:device.*:failure.*:semaphore.*:load.*-load.a_hundred*"

// These variants compute on the host, so their launches wait for the stream, and findings of this
// cause do not count.
inline constexpr const char* kWaits = "blocks";

inline constexpr KillRow kBenignTable[] = {
    {"benign_reverse_sum", "sums from the end", "op.sum.f32.*", nullptr, kWaits},
    {"benign_pairwise_sum", "sums by pairs", "op.sum.f32.*", nullptr, kWaits},
    {"benign_extra_workspace", "more workspace", "op.matmul.f32.*", nullptr, "", true},
    {"benign_aligned", "claims an alignment of 64 bytes", "op.add.f32.*", nullptr, ""},
    {"benign_flush_declared", "declared flush to zero", "op.mul.f32.*", nullptr, kWaits},
    {"benign_other_nan", "another NaN", "op.mul.f32.*", nullptr, kWaits},
    {"benign_any_tie", "any index of a tie, declared", "op.argmax.f32.*", nullptr, kWaits},
    {"benign_lazy", "work starts as late as it may", "stream.*:event.*:failure.*", nullptr, ""},
    {"benign_reorder", "streams start in any order", "stream.*:event.*:failure.*", nullptr, ""},
    {"benign_recycle", "handles of buffers come back", "stream.*:memory.*", nullptr, ""},
    {"benign_guard", "a current device for each thread", "guard.*", nullptr, ""},

    {"benign_split_k", "products summed in four parts", "*.matmul.*", nullptr, kWaits, true},
    {"benign_reverse_k", "products summed from the end", "*.matmul.*", nullptr, kWaits, true},
    {"benign_fused_k", "fused multiply and add", "*.matmul.*", nullptr, kWaits, true},
    {"benign_wide_k", "products summed in f64", "*.matmul.*", nullptr, kWaits, true},
    {"benign_f16_sums", "declared sums in f16", "*.matmul.f32*", nullptr, kWaits, true},
    {"benign_13_bits", "declared sums of 13 bits", "*.matmul.f32*", nullptr, kWaits, true},
    {"benign_tf32", "declared products of TF32", "*.matmul.f32*", nullptr, kWaits, true},
    {"benign_bf16", "declared products of bf16", "*.matmul.f32*", nullptr, kWaits, true},
    {"benign_bf16x3", "declared: three products of bf16", "*.matmul.f32*", nullptr, kWaits, true},
    {"benign_exact_functions", "functions computed in f64",
     "*.exp.*:*.log.*:*.tanh.*:*.sqrt.*:*.sigmoid.*:*.silu.*", nullptr, kWaits, true},
    {"benign_relaxed_exp", "declared relaxed exp", "*.exp.*", nullptr, kWaits, true},
    {"benign_faithful", "declared truncation", "*.mul.f32*", nullptr, kWaits, true},
    {"benign_saturating", "declared saturation", "*.mul.f32*", nullptr, kWaits, true},
    {"benign_online_softmax", "maximum and sum in one pass", "*.softmax.*", nullptr, kWaits, true},
    {"benign_exp2_softmax", "declared relaxed: softmax by exp2", "*.softmax.*", nullptr, kWaits,
     true},
    {"benign_welford", "variance by Welford", "*.layer_norm.*", nullptr, kWaits, true},
    {"benign_reciprocal_mean", "mean by the reciprocal", "*.mean.*", nullptr, kWaits, true},

    {"benign_own:index_add", "a kernel on the host", "op.index_add.f32.*-*.out_of_range.*", nullptr,
     kWaits, true},
    {"benign_own:index_put", "a kernel on the host", "op.index_put.f32.*-*.out_of_range.*", nullptr,
     kWaits, true},
    {"benign_own:norm", "a kernel on the host", "op.norm.f32.*", nullptr, kWaits, true},
    {"benign_own:unfold", "a kernel on the host", "op.unfold.f32.*", nullptr, kWaits, true},
    {"benign_own:fold", "a kernel on the host", "op.fold.f32.*", nullptr, kWaits, true},
    {"benign_own:instance_norm", "a kernel on the host", "op.instance_norm.f32.*", nullptr, kWaits,
     true},
    {"benign_own:fake_quantize", "a kernel on the host", "op.fake_quantize.f32.*", nullptr, kWaits,
     true},
    {"benign_own:lstm_cell", "a kernel on the host", "op.lstm_cell.f32.*", nullptr, kWaits, true},
    {"benign_own:gru_cell", "a kernel on the host", "op.gru_cell.f32.*", nullptr, kWaits, true},
    {"benign_own:rnn_cell", "a kernel on the host", "op.rnn_cell.f32.*", nullptr, kWaits, true},
    {"benign_own:randint", "a kernel on the host", "op.randint.i64.*", nullptr, kWaits, true},
    {"benign_own:bernoulli", "a kernel on the host", "op.bernoulli.f32.*", nullptr, kWaits, true},
    {"benign_own:randperm", "a kernel on the host", "op.randperm.i64.*", nullptr, kWaits, true},
    {"benign_own:multinomial", "a kernel on the host", "op.multinomial.f32.*", nullptr, kWaits,
     true},

    {"benign_dense", "claims contiguous tensors alone", BP_OPS, nullptr, "", true},
    {"benign_rank_4", "a device of rank 4 at most", BP_OPS, nullptr, "", true},
    {"benign_asked", "supports() is asked each time", BP_OPS, nullptr, "", true},
    {"benign_priority", "the lowest priority", BP_OPS, nullptr, "", true},
    {"benign_no_capture", "kernels cannot be captured", BP_OPS, nullptr, "", true},
    {"benign_any_order", "no kernel is deterministic", BP_OPS, nullptr, "", true},
    {"benign_not_in_place", "no kernel works in place", BP_OPS, nullptr, "", true},
    {"benign_no_scalars", "no inline scalars", BP_OPS, nullptr, "", true},
    {"benign_no_flags", "kernels without any flag", BP_OPS, nullptr, "", true},
    {"benign_later_release", "flags and sizes of a later release", BP_OPS, nullptr, "", true},
    {"benign_page_offsets", "claims offsets of whole pages", BP_OPS, nullptr, "", true},
    {"benign_workspace", "each kernel needs workspace", BP_OPS, nullptr, "", true},

    {"benign_slow_launch", "launches take 0.2 ms", "stream.*:event.*", nullptr, "", true},
    {"benign_flush", "streams are flushed before launches", "stream.*:event.*", nullptr, "", true},
    {"benign_slow_copies", "copies take 0.2 ms to submit", BP_TABLES, nullptr, "", true},
    {"benign_talkative", "allocations log warnings", BP_TABLES, nullptr, "", true},
    {"benign_ones", "new memory is full of ones", BP_TABLES, nullptr, "", true},
    {"benign_zeros", "new memory is full of zeros", BP_TABLES ":op.add.*", nullptr, "", true},
    {"benign_no_addresses", "buffers without addresses", BP_TABLES, nullptr, "", true},
    {"benign_no_host_memory", "no memory of the host is taken", BP_TABLES, nullptr, "", true},
    {"benign_no_sharing", "nothing is exported", BP_TABLES, nullptr, "", true},
    {"benign_no_peers", "no copies between devices", BP_TABLES, nullptr, "", true},
    {"benign_no_native", "no native streams", BP_TABLES, nullptr, "", true},
    {"benign_no_reset", "no reset and no options", BP_TABLES, nullptr, "", true},
    {"benign_no_callbacks", "no callbacks of events", BP_TABLES, nullptr, "", true},
    {"benign_minimal", "no optional entry", BP_TABLES, nullptr, "", true},
    {"benign_no_signals", "no events that the host signals", BP_TABLES, nullptr, "", true},
    {"benign_no_timing", "no times of events", BP_TABLES, nullptr, "", true},
    {"benign_unknown", "a profile that nobody knows", BP_TABLES, nullptr, "", true},
    {"benign_silent", "little is said about the device", BP_TABLES, nullptr, "", true},
    {"benign_names", "a name with odd characters", BP_TABLES, nullptr, "", true},
    {"benign_f32_alone", "a device of f32 alone", BP_OPS, nullptr, "", true},
};

#undef BP_OPS
#undef BP_TABLES

}  // namespace bp::conformance
