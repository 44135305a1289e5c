// ROPE: angles from positions, and the rotation of pairs by them.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "lower.h"

extern "C" void ggml_rope_yarn_corr_dims(int n_dims, int n_ctx_orig, float freq_base,
                                         float beta_fast, float beta_slow, float dims[2]);

namespace bpg {
namespace {

struct Rope {
  explicit Rope(const ggml_tensor* the_node)
      : node(the_node),
        dims(int_param(node, 1)),
        mode(int_param(node, 2)),
        offset(int_param(node, 15)),
        is_multi((mode & GGML_ROPE_TYPE_MROPE) != 0),
        is_vision(mode == GGML_ROPE_TYPE_VISION),
        // For images all elements are turned, in pairs that lie `dims` apart.
        pairs(is_vision ? dims : dims / 2) {}

  const ggml_tensor* node;
  int64_t dims;
  int mode;
  int64_t offset;
  bool is_multi, is_vision;
  int64_t pairs;

  int section(int index) const { return int_param(node, 11 + index); }
};

// Which of the four positions of a token turns a pair, and the first pair of its section.
struct Place {
  int32_t position;
  int first;
};

Place interleaved_place(const Rope& rope, int sector) {
  const int axis = sector % 3;
  if (axis == 1 && sector < 3 * rope.section(1)) return {1, 0};
  if (axis == 2 && sector < 3 * rope.section(2)) return {2, 0};
  if (axis == 0 && sector < 3 * rope.section(0)) return {0, 0};
  return {3, 0};
}

Place place_of_pair(const Rope& rope, int64_t pair) {
  if (!rope.is_multi) return {0, 0};
  int all = 0;
  for (int i = 0; i < 4; ++i) all += rope.section(i);
  if (all == 0) throw Refusal("the sections of the positions are empty");
  const auto sector = static_cast<int>(pair % all);
  if (rope.mode == GGML_ROPE_TYPE_IMROPE) return interleaved_place(rope, sector);
  int first = 0;
  for (int i = 0; i < 3; ++i) {
    if (sector < first + rope.section(i)) return {i, first};
    first += rope.section(i);
  }
  return {3, first};
}

// The angle of each pair at position 1. YaRN mixes two frequencies by a ramp over the pairs.
std::vector<float> frequencies(const Rope& rope) {
  const ggml_tensor* const node = rope.node;
  const float base = float_param(node, 5), scale = float_param(node, 6);
  const float ext = float_param(node, 7);
  float ramp[2];
  ggml_rope_yarn_corr_dims(static_cast<int>(rope.dims), int_param(node, 4), base,
                           float_param(node, 9), float_param(node, 10), ramp);
  const float step = std::pow(base, -2.0f / static_cast<float>(rope.dims));
  std::vector<float> powers{1.0f};
  while (static_cast<int64_t>(powers.size()) < rope.pairs) powers.push_back(powers.back() * step);
  std::vector<float> result;
  for (int64_t pair = 0; pair < rope.pairs; ++pair) {
    int64_t power = pair;
    if (rope.is_vision) {
      int all = 0;
      for (int i = 0; i < 4; ++i) all += rope.section(i);
      power = pair % all - place_of_pair(rope, pair).first;
    }
    const float y = (static_cast<float>(pair) - ramp[0]) / std::max(0.001f, ramp[1] - ramp[0]);
    const float mix = (1 - std::min(1.0f, std::max(0.0f, y))) * ext;
    result.push_back(powers[power] * (scale * (1 - mix) + mix));
  }
  return result;
}

// Positions as f32, (tokens, pairs).
View positions(Emitter& e, const Rope& rope, int64_t tokens) {
  View all = e.tensor(rope.node->src[1]);
  all = e.cast(squeeze(squeeze(squeeze(all, 0), 0), 0), BP_F32);
  if (!rope.is_multi) return expand(unsqueeze(all, 1), 1, rope.pairs);
  std::vector<int32_t> chosen;
  for (int64_t i = 0; i < rope.pairs; ++i) chosen.push_back(place_of_pair(rope, i).position);
  const View rows = split(all, 0, tokens);
  const View y = e.temporary(BP_F32, {rope.pairs, tokens});
  bp_index_select_args args{};
  args.x = e.arg(rows);
  args.indices = e.arg(e.constant(chosen));
  args.y = e.arg(y);
  e.launch(BP_OP_INDEX_SELECT, args);
  return swap_last(y);
}

Emitter::Shared angles(Emitter& e, const Rope& rope, int64_t tokens) {
  const Shape shape{tokens, rope.pairs};
  View angle = e.binary(BP_OP_MUL, positions(e, rope, tokens),
                        expand_to(unsqueeze(e.constant(frequencies(rope)), 0), shape));
  if (rope.node->src[2] != nullptr) {
    const View row = squeeze(squeeze(e.tensor(rope.node->src[2]), 0), 0);
    angle = e.binary(BP_OP_DIV, angle, expand_to(slice(row, 1, 0, rope.pairs), shape));
  }
  View cos = e.unary(BP_OP_COS, angle), sin = e.unary(BP_OP_SIN, angle);
  float size = float_param(rope.node, 8);
  if (float_param(rope.node, 7) != 0) {
    size *= 1.0f + 0.1f * std::log(1.0f / float_param(rope.node, 6));
  }
  const float sign = rope.node->op == GGML_OP_ROPE_BACK ? -size : size;
  if (size != 1) cos = e.binary(BP_OP_MUL, cos, size);
  if (sign != 1) sin = e.binary(BP_OP_MUL, sin, sign);
  return {cos, sin};
}

// The layers of a model turn by the same angles, if the positions are an input of the graph.
Emitter::Shared shared_angles(Emitter& e, const Rope& rope, int64_t tokens) {
  const ggml_tensor* position = rope.node->src[1];
  const ggml_tensor* const owner = position->view_src != nullptr ? position->view_src : position;
  if (owner->op != GGML_OP_NONE) return angles(e, rope, tokens);
  std::string key(reinterpret_cast<const char*>(rope.node->op_params), 16 * sizeof(int32_t));
  const void* const sources[] = {position, rope.node->src[2]};
  key.append(reinterpret_cast<const char*>(sources), sizeof(sources));
  key.push_back(rope.node->op == GGML_OP_ROPE_BACK ? 'b' : 'f');
  if (const Emitter::Shared* found = e.find_shared(key)) return *found;
  const Emitter::Shared made = angles(e, rope, tokens);
  e.keep_shared(key, made);
  return made;
}

}  // namespace

void lower_rope(Emitter& e, const ggml_tensor* node) {
  const Rope rope(node);
  const View x = e.tensor(node->src[0]), y = e.tensor(node);
  const Emitter::Shared turn = shared_angles(e, rope, x.shape[1]);
  const auto of_heads = [&](const View& table) {
    return expand_to(unsqueeze(unsqueeze(table, 1), 0),
                     {x.shape[0], x.shape[1], x.shape[2], rope.pairs});
  };
  bp_rope_args args{};
  const int64_t stop = rope.offset == 0 ? x.shape[3] : rope.offset + 2 * rope.pairs;
  args.x = e.arg(slice(x, 3, rope.offset, stop));
  args.cos = e.arg(of_heads(turn[0]));
  args.sin = e.arg(of_heads(turn[1]));
  args.y = e.arg(slice(y, 3, rope.offset, stop));
  args.is_interleaved = rope.mode == GGML_ROPE_TYPE_NORMAL;
  e.launch(BP_OP_ROPE, args);
  const auto copy_part = [&](int64_t from, int64_t to) {
    if (from < to && !same_elements(x, y)) e.copy(slice(x, 3, from, to), slice(y, 3, from, to));
  };
  copy_part(0, rope.offset);
  copy_part(stop, x.shape[3]);
}

}  // namespace bpg
