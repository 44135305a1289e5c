// sdpa:  y = softmax(scale * q k^T + bias) v  and its gradients (sdpa_forward.cpp,
// sdpa_backward.cpp)
#include "backends/host_kernels/sdpa.hpp"

#include "backends/host_kernels/kernels.hpp"

namespace bp::kernels {

int64_t AttentionBackward::splits() const {
  constexpr int64_t kUnits = 32, kBlocksOfSplit = 4;
  const int64_t wanted = (kUnits + problems() - 1) / std::max<int64_t>(1, problems());
  return std::clamp<int64_t>(wanted, 1, std::max<int64_t>(1, row_blocks() / kBlocksOfSplit));
}

int64_t AttentionBackward::sum_elements() const {
  return keys *
         ((has_grad_k ? padded_width(width) : 0) + (has_grad_v ? padded_width(value_width) : 0));
}

AttentionScratch::AttentionScratch(const Attention& a, bool is_backward) {
  q_panels = reserve(a.width * kRowBlock);
  const int64_t y_width = is_backward ? a.width : a.value_width;
  y_panels = reserve(y_width * kRowBlock);
  keys = reserve(a.width * kKeyBlock);
  values = reserve(a.value_width * kKeyBlock);
  scores = reserve(kKeyBlock * kRowBlock);
  line = reserve(std::max({a.width, a.value_width, kKeyBlock}) + kKeyBlock);
  peaks = reserve(kRowBlock);
  sums = reserve(kRowBlock);
  y_totals = reserve(a.has_key_totals() ? y_width * kRowBlock : 0);
  sum_totals = reserve(a.has_key_totals() ? kRowBlock : 0);
  grad_panels = reserve(is_backward ? a.value_width * kRowBlock : 0);
  q_rows = reserve(is_backward ? padded_width(a.width) * kRowBlock : 0);
  grad_rows = reserve(is_backward ? padded_width(a.value_width) * kRowBlock : 0);
  grad_scores = reserve(is_backward ? kKeyBlock * kRowBlock : 0);
  const bool bends = is_backward && (a.has_softcap() || a.has_dropout());
  slopes = reserve(bends ? kKeyBlock * kRowBlock : 0);
  kept = reserve(bends || a.has_dropout() ? kKeyBlock * kRowBlock : 0);
  const int64_t depth = padded_width(a.width), columns = padded_width(a.value_width);
  const int64_t halves = kRowBlock * depth + kKeyBlock * kRowBlock / 2 + kKeyBlock * columns +
                         kKeyBlock * depth + (kKeyBlock + 1) * columns;
  amx = reserve(a.uses_amx ? halves / 2 + columns * kRowBlock / 2 : 0);
}

int64_t AttentionScratch::reserve(int64_t elements) {
  const int64_t begin = size_;
  size_ += (elements + 15) / 16 * 16;  // Parts begin at cache lines.
  return begin;
}

bool has_few_rows(const AttentionForward& a) {
  const int64_t most = a.sum_size_bytes() == 8 ? kMostFewRows / 2 : kMostFewRows;
  const bool is_dense = a.k.strides[3] == 1 && a.v.strides[3] == 1;
  return a.rows() <= most && is_dense && !a.has_dropout();
}

int64_t few_keys_of_part(int64_t keys) {
  constexpr int64_t kLeastKeys = 256, kMostKeys = kTilesOfSum * kKeyBlock, kMostParts = 32;
  const int64_t size = std::clamp((keys + kMostParts - 1) / kMostParts, kLeastKeys, kMostKeys);
  return (size + kKeyBlock - 1) / kKeyBlock * kKeyBlock;
}

int64_t few_parts(int64_t keys) {
  const int64_t size = few_keys_of_part(keys);
  return std::max<int64_t>(1, (keys + size - 1) / size);
}

int64_t few_sums_size(const AttentionForward& a) {
  return 2 * kMostFewRows + a.rows() * padded_width(a.value_width);
}

int64_t few_scratch_size(const AttentionForward& a) {
  const int64_t rows = std::min(a.rows(), kMostFewRows);
  return rows * (padded_width(a.width) + kKeyBlock) + kKeyBlock;
}

uint64_t attentions_workspace_size_bytes(const AttentionForward& a, int64_t problems, int64_t rows,
                                         int thread_count) {
  rows = std::min(rows, problems * kMostFewRows);
  const int64_t sums =
      (2 * kMostFewRows * problems + rows * padded_width(a.value_width)) * few_parts(a.keys);
  const int64_t elements = std::max(AttentionScratch(a, false).size() * thread_count,
                                    sums + few_scratch_size(a) * thread_count);
  return static_cast<uint64_t>(elements * a.sum_size_bytes());
}

uint64_t attention_workspace_size_bytes(const AttentionForward& a, int thread_count) {
  if (has_few_rows(a)) {
    return attentions_workspace_size_bytes(a, a.problems(), a.problems() * a.rows(), thread_count);
  }
  const int64_t elements = AttentionScratch(a, false).size() * thread_count;
  return static_cast<uint64_t>(elements * a.sum_size_bytes());
}

uint64_t attention_workspace_size_bytes(const AttentionBackward& a, int thread_count) {
  const int64_t sums = a.splits() > 1 ? a.splits() * a.problems() : thread_count;
  const int64_t elements = AttentionScratch(a, true).size() * thread_count + a.sum_stride() * sums;
  return static_cast<uint64_t>(elements * a.sum_size_bytes());
}

namespace {

// A frame may have neither the tensor nor the scalar, which stands for 0.
ScalarArgument seed_argument(const bp_tensor* tensor, const bp_scalar& scalar) {
  if (tensor == nullptr && scalar.dtype == 0) return {};
  return {tensor, scalar, BP_U64};
}

template <typename Args>
void set_operands(Attention& a, const Args& args) {
  a.dtype = args.q->dtype;
  a.batch = args.q->shape[0];
  a.key_heads = args.k->shape[1];
  a.group = args.q->shape[1] / std::max<int64_t>(1, a.key_heads);
  a.queries = args.q->shape[2];
  a.keys = args.k->shape[2];
  a.width = args.q->shape[3];
  a.value_width = args.v->shape[3];
  a.q = view_of(*args.q);
  a.k = view_of(*args.k);
  a.v = view_of(*args.v);
  a.has_mask = args.mask != nullptr;
  a.has_bias = args.bias != nullptr;
  if (a.has_mask) a.mask = view_of(*args.mask);
  if (a.has_bias) a.bias = view_of(*args.bias);
  a.has_sinks = args.sinks != nullptr;
  if (a.has_sinks) a.sinks = view_of(*args.sinks);
  a.has_band = has_band(args);
  a.band = key_band(args);
  a.scale = args.scale;
  a.softcap = args.softcap;
  a.dropout = {.p = args.dropout_p,
               .seed = seed_argument(args.seed, args.seed_scalar),
               .offset = seed_argument(args.offset, args.offset_scalar)};
}

AttentionForward forward_of(const bp_sdpa_args& args, bool uses_amx) {
  AttentionForward a;
  set_operands(a, args);
  a.uses_amx = uses_amx;
  a.y = view_of(*args.y);
  a.has_lse = args.lse != nullptr;
  if (a.has_lse) a.lse = view_of(*args.lse);
  return a;
}

AttentionBackward backward_of(const bp_sdpa_backward_args& args) {
  AttentionBackward a;
  set_operands(a, args);
  a.grad_y = view_of(*args.grad_y);
  a.y = view_of(*args.y);
  a.lse = view_of(*args.lse);
  a.grad_q = view_of(*args.grad_q);
  a.has_grad_k = args.grad_k != nullptr;
  a.has_grad_v = args.grad_v != nullptr;
  if (a.has_grad_k) a.grad_k = view_of(*args.grad_k);
  if (a.has_grad_v) a.grad_v = view_of(*args.grad_v);
  a.has_grad_sinks = args.grad_sinks != nullptr;
  if (a.has_grad_sinks) a.grad_sinks = view_of(*args.grad_sinks);
  return a;
}

template <typename Operands>
bp_status submit(const Operands& operands, Launch& launch) {
  return launch.submit(
      [operands, workspace = launch.workspace(), thread_count = launch.thread_count()] {
        run_attention(operands, workspace, thread_count);
        if constexpr (std::is_same_v<Operands, AttentionBackward>) {
          if (operands.has_grad_sinks) run_sink_gradients(operands, thread_count);
        }
      });
}

constexpr bp_dtype kAmxDtypes[] = {BP_BF16};

template <bool uses_amx>
uint64_t sdpa_workspace(const bp_sdpa_args& args, const Env& env) {
  return attention_workspace_size_bytes(forward_of(args, uses_amx), env.thread_count());
}

template <bool uses_amx>
bp_status sdpa_launch(const bp_sdpa_args& args, Launch& launch) {
  return submit(forward_of(args, uses_amx), launch);
}

bp_reason amx_supports(const bp_sdpa_args&) { return attention_amx_refusal(); }

uint64_t sdpa_backward_workspace(const bp_sdpa_backward_args& args, const Env& env) {
  return attention_workspace_size_bytes(backward_of(args), env.thread_count());
}

bp_status sdpa_backward_launch(const bp_sdpa_backward_args& args, Launch& launch) {
  return submit(backward_of(args), launch);
}

}  // namespace

extern constinit const bp_kernel kSdpaAmx =
    make_kernel<bp_sdpa_args, sdpa_launch<true>, amx_supports, sdpa_workspace<true>>([] {
      bp_kernel row =
          kernel_row_of_any_shape("sdpa.amx", BP_OP_SDPA, kAmxDtypes, BP_KERNEL_TAKES_SCALAR);
      row.numerics = &kAmxNumerics;
      return row;
    }());

extern constinit const bp_kernel kSdpa =
    make_kernel<bp_sdpa_args, sdpa_launch<false>, nullptr, sdpa_workspace<false>>(
        kernel_row("sdpa", BP_OP_SDPA, kFloatDtypes, BP_KERNEL_TAKES_SCALAR));

extern constinit const bp_kernel kSdpaBackward =
    make_kernel<bp_sdpa_backward_args, sdpa_backward_launch, nullptr, sdpa_backward_workspace>(
        kernel_row("sdpa_backward", BP_OP_SDPA_BACKWARD, kFloatDtypes, BP_KERNEL_TAKES_SCALAR));

}  // namespace bp::kernels
