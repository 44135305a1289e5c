// GET_ROWS and SET_ROWS: rows by their numbers, also rows of blocks.
#include <algorithm>

#include "log.h"
#include "lower.h"

namespace bpg {
namespace {

// Writes the rows of `x` by the op of caches. Returns false if the device does not compute it.
bool append_rows(Emitter& e, const View& table, const View& x, const View& numbers) {
  // A cache of one block with as many rows as the table has, and of one head.
  const View cache = unsqueeze(unsqueeze(table, 1), 0);
  bp_kv_cache_append_args args{};
  args.cache = args.y = e.arg(cache);
  args.x = e.arg(unsqueeze(x, 1));
  args.slots = e.arg(numbers);
  if (!e.can_launch(BP_OP_KV_CACHE_APPEND, args)) return false;
  e.launch(BP_OP_KV_CACHE_APPEND, args);
  return true;
}

// The numbers from place `first` on that have equal steps, as those of a token in a cache do whose
// rows are channels.
struct Run {
  size_t first;
  int64_t step, count;
};

Run run_from(const std::vector<int64_t>& numbers, size_t first) {
  Run run{first, 1, 1};
  if (first + 1 < numbers.size() && numbers[first + 1] > numbers[first]) {
    run.step = numbers[first + 1] - numbers[first];
  }
  for (size_t i = first + 1; i < numbers.size(); ++i, ++run.count) {
    if (numbers[i] - numbers[i - 1] != run.step) break;
  }
  return run;
}

// Writes the rows of `x` by copies, one for each run of numbers. As for the op of caches, a
// negative number writes nothing, and the last of equal numbers counts. Where nothing is computed,
// both forms of a copy are asked for.
void copy_rows(Emitter& e, const View& table, const View& x, const std::vector<int64_t>& numbers) {
  const int64_t rows = std::min(x.shape[0], table.shape[0]);
  if (numbers.empty() && rows > 0) {
    e.copy(slice(x, 0, 0, rows), slice(table, 0, 0, rows));
    e.copy(slice(x, 0, 0, (rows + 1) / 2), every(table, 0, 0, 2, (rows + 1) / 2));
  }
  for (size_t i = 0; i < numbers.size();) {
    const Run run = run_from(numbers, i);
    const int64_t from = numbers[i], last = from + (run.count - 1) * run.step;
    const auto place = static_cast<int64_t>(i);
    i += static_cast<size_t>(run.count);
    if (last >= table.shape[0]) {
      throw Failure(BP_DATA_FAILURE, "the number of a row is " + std::to_string(last) +
                                         ", and there are " + std::to_string(table.shape[0]));
    }
    if (last < 0) continue;
    const int64_t skipped = from < 0 ? (run.step - 1 - from) / run.step : 0;
    e.copy(slice(x, 0, place + skipped, place + run.count),
           every(table, 0, from + skipped * run.step, run.step, run.count - skipped));
  }
}

}  // namespace

void emit_get_rows(Emitter& e, const View& table, const View& numbers, const View& y) {
  bp_embedding_args args{};
  args.weight = e.arg(table);
  args.indices = e.arg(numbers);
  args.y = e.arg(y);
  e.launch(BP_OP_EMBEDDING, args);
}

void emit_set_rows(Emitter& e, const View& table, const View& x, const View& numbers) {
  if (append_rows(e, table, x, numbers)) return;
  copy_rows(e, table, x, e.read(e.contiguous(numbers)));
}

void emit_set_rows(Emitter& e, const View& table, const View& x,
                   const std::vector<int32_t>& numbers) {
  if (append_rows(e, table, x, e.upload(numbers))) return;
  copy_rows(e, table, x, {numbers.begin(), numbers.end()});
}

namespace {

// The matrix of the batch (i3, i2), without the axes of the batch.
View matrix(const View& x, int64_t i3, int64_t i2) {
  return squeeze(squeeze(slice(slice(x, 0, i3, i3 + 1), 1, i2, i2 + 1), 0), 0);
}

// The numbers of the rows that the batch (i3, i2) takes.
View numbers_of(const View& indices, int64_t i3, int64_t i2) {
  return squeeze(slice(matrix(indices, 0, i3), 0, i2, i2 + 1), 0);
}

// Rows of blocks are taken as bytes and then decoded.
void get_blocks(Emitter& e, const ggml_tensor* from, const View& bytes, const View& indices,
                const View& y) {
  const BlockFormat* const format = block_format(from->type);
  if (format == nullptr) {
    throw Refusal(std::string("Backplane has no layout for ") + ggml_type_name(from->type));
  }
  const View rows = e.temporary_blocks(*format, {indices.shape[0], from->ne[0]});
  View raw = dense(rows.buffer, rows.byte_offset, BP_U8, {indices.shape[0], bytes.shape[1]});
  emit_get_rows(e, bytes, indices, raw);
  e.convert(rows, y);
}

void set_blocks(Emitter& e, const ggml_tensor* node, const View& bytes, const View& x,
                const View& slots) {
  const BlockFormat* const format = block_format(node->type);
  if (format == nullptr || !e.device().can_encode(*format)) {
    throw Refusal(std::string("the device makes no blocks of ") + ggml_type_name(node->type));
  }
  require_no_ties(node->src[0]);
  const View rows = e.temporary_blocks(*format, x.dims());
  e.convert(x, rows);
  emit_set_rows(e, bytes, dense(rows.buffer, rows.byte_offset, BP_U8, {x.shape[0], bytes.shape[1]}),
                slots);
}

}  // namespace

void lower_get_rows(Emitter& e, const ggml_tensor* node) {
  const ggml_tensor* const from = node->src[0];
  const bool is_blocks = ggml_is_quantized(from->type);
  const View x = is_blocks ? e.bytes(from) : e.tensor(from);
  const View indices = e.tensor(node->src[1]), y = e.tensor(node);
  for (int64_t i3 = 0; i3 < y.shape[0]; ++i3) {
    for (int64_t i2 = 0; i2 < y.shape[1]; ++i2) {
      const View table = matrix(x, i3, i2), out = matrix(y, i3, i2);
      const View numbers = numbers_of(indices, i3, i2);
      if (is_blocks) {
        get_blocks(e, from, table, numbers, out);
      } else if (table.dtype == out.dtype) {
        emit_get_rows(e, table, numbers, out);
      } else {
        const View rows = e.temporary(table.dtype, out.dims());
        emit_get_rows(e, table, numbers, rows);
        e.copy(rows, out);
      }
    }
  }
}

void lower_get_rows_back(Emitter& e, const ggml_tensor* node) {
  bp_embedding_backward_args args{};
  args.grad_y = e.arg(e.cast(matrix(e.tensor(node->src[0]), 0, 0), BP_F32));
  args.indices = e.arg(numbers_of(e.tensor(node->src[1]), 0, 0));
  args.grad_weight = e.arg(matrix(e.tensor(node), 0, 0));
  args.num_embeddings = node->ne[1];
  e.launch(BP_OP_EMBEDDING_BACKWARD, args);
}

void lower_set_rows(Emitter& e, const ggml_tensor* node) {
  const bool is_blocks = ggml_is_quantized(node->type);
  const View y = is_blocks ? e.bytes(node) : e.tensor(node);
  const View x = e.tensor(node->src[0]), indices = e.tensor(node->src[1]);
  for (int64_t i3 = 0; i3 < x.shape[0]; ++i3) {
    for (int64_t i2 = 0; i2 < x.shape[1]; ++i2) {
      const View slots = numbers_of(indices, i3 % indices.shape[1], i2 % indices.shape[2]);
      const View cache = matrix(y, i3, i2), rows = matrix(x, i3, i2);
      if (is_blocks) {
        set_blocks(e, node, cache, rows, slots);
      } else {
        emit_set_rows(e, cache, e.cast(rows, cache.dtype), slots);
      }
    }
  }
}

}  // namespace bpg
