// paged_attention: the attention of several sequences whose keys and values lie in blocks of a
// cache. Each sequence is one attention of the loops of sdpa (sdpa_forward.cpp), and threads share
// the blocks of rows of all sequences. Offsets, lengths and blocks are known when the work runs.
#include <algorithm>
#include <string>
#include <vector>

#include "backends/host_kernels/indices.hpp"
#include "backends/host_kernels/kernels.hpp"
#include "backends/host_kernels/sdpa.hpp"

namespace bp::kernels {
namespace {

struct PagedAttention {
  AttentionForward form;  // What all sequences share; q and y are (tokens, heads, width).
  IndexView table, lengths, offsets;
  Bounds length_bounds, block_bounds;
  int64_t tokens = 0, sequences = 0, blocks = 0, block_size = 0, window_left = 0;

  int64_t key_limit() const { return blocks * block_size; }
  // Returns where the queries of a sequence begin.
  int64_t begin(int64_t sequence) const {
    return std::clamp<int64_t>(offsets.at(sequence), 0, tokens);
  }
};

[[noreturn]] void fail(const char* argument, int64_t position, int64_t index, int64_t extent) {
  throw StatusError(BP_DATA_FAILURE,
                    bad_index_text("paged_attention", argument, position, index, extent));
}

int64_t length_of(const PagedAttention& p, int64_t sequence) {
  const int64_t length = p.length_bounds.acting(p.lengths.at(sequence));
  if (!p.length_bounds.contains(length)) fail("lengths", sequence, length, p.length_bounds.extent);
  return length;
}

// Writes the blocks that hold the first `length` keys of a sequence.
void write_blocks(const PagedAttention& p, int64_t sequence, int64_t length, int64_t* blocks) {
  for (int64_t i = 0; i * p.block_size < length; ++i) {
    blocks[i] = p.block_bounds.acting(p.table.at(sequence, i));
    if (p.block_bounds.contains(blocks[i])) continue;
    fail("block_table", sequence * p.blocks + i, blocks[i], p.block_bounds.extent);
  }
}

// Returns a tensor of tokens as one of queries: (1, heads, queries, width), from a token on.
View queries_of(const View& tokens, int64_t first, int64_t size_bytes) {
  View view;
  view.address = tokens.address + first * tokens.strides[0] * size_bytes;
  view.ndim = 4;
  view.strides[1] = tokens.strides[1];
  view.strides[2] = tokens.strides[0];
  view.strides[3] = tokens.strides[2];
  return view;
}

AttentionForward sequence_of(const PagedAttention& p, int64_t begin, int64_t queries,
                             int64_t length, const int64_t* blocks) {
  AttentionForward a = p.form;
  const int64_t size_bytes = dtype_size_bytes(a.dtype);
  a.q = queries_of(p.form.q, begin, size_bytes);
  a.y = queries_of(p.form.y, begin, size_bytes);
  a.queries = queries;
  a.keys = length;
  a.pages = {blocks, p.block_size};
  a.has_band = true;
  const int64_t diagonal = length - queries, all = length + queries;
  const int64_t window = p.window_left == 0 ? all : std::min(p.window_left, all);
  a.band = {.begin = std::max(diagonal - window + 1, -queries),
            .end = std::min(length, diagonal + 1),
            .keys = length};
  return a;
}

// Writes 0 to the rows [begin, end) of y, which are of no sequence.
void clear_rows(const PagedAttention& p, int64_t begin, int64_t end) {
  const View& y = p.form.y;
  const int64_t size_bytes = dtype_size_bytes(p.form.dtype);
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t head = 0; head < y.shape[1]; ++head) {
      for (int64_t c = 0; c < y.shape[2]; ++c) {
        const int64_t offset = row * y.strides[0] + head * y.strides[1] + c * y.strides[2];
        std::fill_n(y.address + offset * size_bytes, size_bytes, std::byte{0});
      }
    }
  }
}

void run_paged(const PagedAttention& p, int64_t* blocks, std::byte* workspace, int thread_count) {
  std::vector<AttentionForward> sequences;
  for (int64_t s = 0; s < p.sequences; ++s, blocks += p.blocks) {
    const int64_t length = length_of(p, s), begin = p.begin(s), queries = p.begin(s + 1) - begin;
    write_blocks(p, s, length, blocks);
    if (queries > 0) sequences.push_back(sequence_of(p, begin, queries, length, blocks));
  }
  clear_rows(p, 0, p.begin(0));
  clear_rows(p, p.begin(p.sequences), p.tokens);
  run_attentions(sequences, workspace, thread_count);
}

PagedAttention paged_of(const bp_paged_attention_args& args) {
  PagedAttention p;
  AttentionForward& a = p.form;
  a.dtype = args.q->dtype;
  a.batch = 1;
  a.key_heads = args.k_cache->shape[2];
  a.group = args.q->shape[1] / a.key_heads;
  a.width = args.q->shape[2];
  a.value_width = args.v_cache->shape[3];
  a.q = view_of(*args.q);
  a.k = view_of(*args.k_cache);
  a.v = view_of(*args.v_cache);
  a.y = view_of(*args.y);
  a.scale = args.scale;
  a.softcap = args.softcap;
  const bool is_i64 = args.block_table->dtype == BP_I64;
  p.table = {view_of(*args.block_table), is_i64};
  p.lengths = {view_of(*args.lengths), is_i64};
  p.offsets = {view_of(*args.offsets), is_i64};
  p.tokens = args.q->shape[0];
  p.sequences = args.block_table->shape[0];
  p.blocks = args.block_table->shape[1];
  p.block_size = args.k_cache->shape[1];
  p.window_left = args.window_left;
  p.length_bounds = Bounds(p.key_limit() + 1, args.bounds);
  p.block_bounds = Bounds(args.k_cache->shape[0], args.bounds);
  a.keys = p.key_limit();  // The most keys, by which the workspace is reserved.
  a.queries = p.tokens;
  return p;
}

// The blocks of all sequences begin the workspace. Returns where the memory of the loops begins.
uint64_t scratch_offset(const PagedAttention& p) {
  uint64_t end = 0;
  reserve_bytes(static_cast<uint64_t>(p.sequences * p.blocks) * sizeof(int64_t), end);
  return reserve_bytes(0, end);
}

uint64_t paged_workspace(const bp_paged_attention_args& args, const Env& env) {
  const PagedAttention p = paged_of(args);
  const AttentionForward& a = p.form;
  return scratch_offset(p) + attentions_workspace_size_bytes(a, p.sequences * a.key_heads,
                                                             p.tokens * a.key_heads * a.group,
                                                             env.thread_count());
}

bp_status paged_launch(const bp_paged_attention_args& args, Launch& launch) {
  const PagedAttention p = paged_of(args);
  return launch.submit([p, memory = launch.workspace(), offset = scratch_offset(p),
                        threads = launch.thread_count()] {
    run_paged(p, reinterpret_cast<int64_t*>(memory), memory + offset, threads);
  });
}

constexpr auto kDtypes = with_indices(kFloatDtypes);

}  // namespace

extern constinit const bp_kernel kPagedAttention =
    make_kernel<bp_paged_attention_args, paged_launch, nullptr, paged_workspace>(
        kernel_row("paged_attention", BP_OP_PAGED_ATTENTION, {kDtypes, 2}));

}  // namespace bp::kernels
