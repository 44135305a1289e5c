// Attention and its gradients. The query heads that share a head of keys become rows of one
// problem, one head after the other. So each (batch, head of keys) is one problem of (group *
// queries) rows by keys:
//
//   scores = scale * q k^T + bias    p = softmax(scores) over the keys seen    y = p v
//
// A soft cap bends the scores before the bias. A sink is one more term of the sum of a softmax, and
// dropout multiplies p by 0 or by 1 / (1 - dropout_p).
//
// A problem is walked in tiles of kRowBlock rows by kKeyBlock keys. Tiles that causal or the
// windows hide from all rows of a block are skipped. A key that is not seen adds nothing, whatever
// its value is. A key with a score of -inf has the weight 0.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "backends/host_kernels/scalar.hpp"
#include "backends/host_kernels/strided.hpp"
#include "backplane/shell/key_band.hpp"
#include "kernel_env.hpp"

namespace bp::kernels {

constexpr int64_t kRowBlock = 64;
constexpr int64_t kKeyBlock = 64;

// Sums over keys, and over rows, are made of sums over tiles. After this many tiles the sums are
// added to totals, so that long sums keep their digits.
constexpr int64_t kTilesOfSum = 64;

// Below this many products a team of threads costs more than it saves.
constexpr int64_t kParallelProducts = 1 << 17;

// What multiplies the weights of an attention: element i of (batch, heads, queries, keys) is kept
// where the f32 uniform number i of (seed, offset) is at least p.
struct AttentionDropout {
  double p = 0;
  ScalarArgument seed, offset;
};

// Where the keys of a paged cache lie: key j is row j % block_size of block blocks[j / block_size].
// The axes of k and v are then (blocks, block_size, key heads, width).
struct KeyPages {
  const int64_t* blocks = nullptr;  // NULL: k and v have an axis of keys.
  int64_t block_size = 0;
};

// The operands that the forward and the backward op have.
struct Attention {
  bp_dtype dtype = 0;
  int64_t batch = 0, key_heads = 0, group = 0, queries = 0, keys = 0, width = 0, value_width = 0;
  View q, k, v, mask, bias, sinks;
  bool has_mask = false, has_bias = false, has_sinks = false, has_band = false;
  bool uses_amx = false;  // Of bf16 alone: a tile register multiplies, and rounds the weights.
  double scale = 0, softcap = 0;
  KeyBand band;
  AttentionDropout dropout;
  KeyPages pages;

  int64_t problems() const { return batch * key_heads; }
  int64_t rows() const { return group * queries; }
  int64_t row_blocks() const { return (rows() + kRowBlock - 1) / kRowBlock; }
  int64_t sum_size_bytes() const { return dtype == BP_F64 ? 8 : 4; }
  bool has_key_totals() const { return keys > kTilesOfSum * kKeyBlock; }

  bool has_softcap() const { return softcap != 0; }
  bool has_dropout() const { return dropout.p != 0; }

  // If the mask is ignored, a row sees the keys [first_key(), key_limit()).
  int64_t first_key(int64_t row) const { return has_band ? band.first_key(row % queries) : 0; }
  int64_t key_limit(int64_t row) const { return has_band ? band.key_limit(row % queries) : keys; }

  int64_t head_of(int64_t problem, int64_t row) const {
    return problem % key_heads * group + row / queries;
  }
  template <typename Sum>
  Sum sink_of(int64_t problem, int64_t row) const {
    return reinterpret_cast<const Sum*>(sinks.address)[head_of(problem, row) * sinks.strides[0]];
  }
  // Returns the number of the weight of key 0 among those of all heads, for the dropout.
  uint64_t weight_number(int64_t problem, int64_t row) const {
    const int64_t head = problem / key_heads * key_heads * group + head_of(problem, row);
    return static_cast<uint64_t>(head * queries + row % queries) * static_cast<uint64_t>(keys);
  }
  // Returns the first element of `row` of a tensor with an axis of query heads and one of queries.
  template <typename T>
  T* row_of(const View& view, int64_t problem, int64_t row) const {
    return reinterpret_cast<T*>(view.address) + problem / key_heads * view.strides[0] +
           head_of(problem, row) * view.strides[1] + row % queries * view.strides[2];
  }
  bool is_paged() const { return pages.blocks != nullptr; }
  // Returns how many keys from `key` on lie at equal distances, and the distance in a view.
  int64_t keys_in_line(int64_t key) const {
    return is_paged() ? pages.block_size - key % pages.block_size : keys - key;
  }
  int64_t key_stride(const View& view) const { return view.strides[is_paged() ? 1 : 2]; }
  // Returns the first element of a key, in k, v and their gradients.
  template <typename T>
  T* key_of(const View& view, int64_t problem, int64_t key) const {
    if (is_paged()) {
      return reinterpret_cast<T*>(view.address) +
             pages.blocks[key / pages.block_size] * view.strides[0] +
             key % pages.block_size * view.strides[1] + problem % key_heads * view.strides[2];
    }
    return reinterpret_cast<T*>(view.address) + problem / key_heads * view.strides[0] +
           problem % key_heads * view.strides[1] + key * view.strides[2];
  }
};

struct AttentionForward : Attention {
  View y, lse;
  bool has_lse = false;
};

struct AttentionBackward : Attention {
  View grad_y, y, lse, grad_q, grad_k, grad_v, grad_sinks;
  bool has_grad_k = false, has_grad_v = false, has_grad_sinks = false;

  // Returns the number of parts of the rows. Each part has its own sums of grad_k and grad_v, which
  // are added in order. The number depends on the extents alone, so equal input gives equal bits
  // for any number of threads.
  int64_t splits() const;
  // Returns whether a part has so many rows that its sums are added to totals on the way.
  bool has_row_totals() const { return row_blocks() > kTilesOfSum * splits(); }
  // Returns the number of elements of the sums of one part, whose rows are whole vectors. If there
  // are totals, as many elements of totals follow.
  int64_t sum_elements() const;
  int64_t sum_stride() const { return (has_row_totals() ? 2 : 1) * sum_elements(); }
};

uint64_t attention_workspace_size_bytes(const AttentionForward& attention, int thread_count);
// The same for a list of attentions like this one, with up to `problems` problems in all, which
// have `rows` rows in all.
uint64_t attentions_workspace_size_bytes(const AttentionForward& attention, int64_t problems,
                                         int64_t rows, int thread_count);
uint64_t attention_workspace_size_bytes(const AttentionBackward& attention, int thread_count);

// Computes several attentions of one dtype, whose blocks of rows the threads share.
void run_attentions(std::span<const AttentionForward> attentions, std::byte* workspace,
                    int thread_count);
inline void run_attention(const AttentionForward& attention, std::byte* workspace,
                          int thread_count) {
  run_attentions({&attention, 1}, workspace, thread_count);
}
void run_attention(const AttentionBackward& attention, std::byte* workspace, int thread_count);

// Returns why the forward op of this processor does not take Attention::uses_amx, or NULL.
bp_reason attention_amx_refusal();

// What kernels with Attention::uses_amx declare.
inline constexpr bp_numerics kAmxNumerics = {.struct_size = sizeof(bp_numerics),
                                             .struct_type = BP_STRUCT_NUMERICS,
                                             .products = BP_PRODUCTS_BF16,
                                             .flush = BP_FLUSH_INPUTS | BP_FLUSH_OUTPUTS};

// Computes grad_sinks (sdpa_sinks.cpp).
void run_sink_gradients(const AttentionBackward& attention, int thread_count);

// ---- Problems of a few rows (sdpa_few.cpp) ------------------------------------------------------

constexpr int64_t kMostFewRows = 16;

// Returns whether the problems have so few rows that vectors should lie along the width.
bool has_few_rows(const AttentionForward& attention);

// The keys of a problem are divided into parts of this size. There are up to 32 parts, and more of
// them only where sums would become longer than kTilesOfSum tiles.
int64_t few_keys_of_part(int64_t keys);
int64_t few_parts(int64_t keys);

// Return the elements of the sums of one part, and of the memory of one thread.
int64_t few_sums_size(const AttentionForward& attention);
int64_t few_scratch_size(const AttentionForward& attention);

// Computes attentions for which has_few_rows() is true.
void run_few_rows(std::span<const AttentionForward* const> attentions, std::byte* workspace,
                  int thread_count);

// Pads the width of a tile's rows in memory to a multiple of the most elements that two vectors
// have.
constexpr int64_t padded_width(int64_t width) { return (width + 31) / 32 * 32; }

// The memory of one thread for one block of rows, in elements of the computing type.
class AttentionScratch {
 public:
  AttentionScratch(const Attention& attention, bool is_backward);

  int64_t size() const { return size_; }

  // The offsets where the parts begin.
  int64_t q_panels, y_panels, keys, values, scores, line, peaks, sums;
  int64_t y_totals, sum_totals;                         // Of earlier keys, if there are many.
  int64_t grad_panels, q_rows, grad_rows, grad_scores;  // Used by the backward op alone.
  int64_t slopes;  // Of the soft cap, which the backward op uses.
  int64_t kept;    // What dropout multiplies a tile of weights by.
  int64_t amx;     // The operands of AMX (sdpa_products-inl.hpp).

 private:
  int64_t reserve(int64_t elements);
  int64_t size_ = 0;
};

}  // namespace bp::kernels
