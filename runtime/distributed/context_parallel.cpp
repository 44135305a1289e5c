// Attention over a sequence that is cut over ranks. With n ranks and a causal mask, rank r has the
// chunks r and 2n - 1 - r of queries. Of the keys of rank j < r it sees the first half with all its
// queries, and of those of rank j > r it sees everything, with the second half of its queries. So
// each step of the ring has the work of half a block, and needs no mask.
#include "backplane/runtime/distributed/context_parallel.hpp"

#include <cmath>
#include <tuple>
#include <utility>

#include "backplane/runtime/autograd.hpp"
#include "backplane/runtime/error.hpp"

namespace bp::distributed {
namespace {

[[noreturn]] void fail(const std::string& what) { throw Error(BP_INVALID_ARGUMENT, what); }

void check_axis(const char* call, const Tensor& x, int64_t axis) {
  if (axis >= 0 && axis < x.ndim()) return;
  fail(std::string(call) + ": axis is " + std::to_string(axis) + ", for the shape " +
       to_string(x.shape()) + "; allowed: 0 to " + std::to_string(x.ndim() - 1));
}

void check_inputs(const char* call, const Tensor& q, const Tensor& k, const Tensor& v) {
  const bool has_axes = q.ndim() == 4 && k.ndim() == 4 && v.ndim() == 4;
  const int64_t length = has_axes ? q.shape(2) : 0;
  if (has_axes && k.shape(2) == length && v.shape(2) == length && length > 0 && length % 2 == 0) {
    return;
  }
  fail(std::string(call) + ": q has the shape " + to_string(q.shape()) + ", k " +
       to_string(k.shape()) + " and v " + to_string(v.shape()) +
       "; allowed: (batch, heads, length, width), with one even length, as cut_sequence() makes "
       "it");
}

void check_heads(const char* what, int64_t count, const ProcessGroup& group) {
  if (count > 0 && count % int64_t{group.size()} == 0) return;
  fail(std::string("all_to_all_attention: ") + what + " are " + std::to_string(count) +
       "; allowed: multiples of the number of ranks, which is " + std::to_string(group.size()) +
       ", or ring_attention() for any number");
}

// Returns the two halves along `axis` of the part that a rank has.
std::pair<Tensor, Tensor> halves(const Tensor& part, int64_t axis) {
  const int64_t half = part.shape(axis) / 2;
  return {part.narrow(axis, 0, half), part.narrow(axis, half, half)};
}

// Joins the parts of all ranks, in the order of the whole sequence.
Tensor in_order(const std::vector<Tensor>& parts, int64_t axis) {
  const size_t count = parts.size();
  std::vector<Tensor> chunks(2 * count);
  for (size_t i = 0; i < count; ++i) {
    std::tie(chunks[i], chunks[2 * count - 1 - i]) = halves(parts[i], axis);
  }
  return cat(chunks, axis);
}

Tensor part_of_rank(const Tensor& whole, int64_t axis, int64_t rank, int64_t size) {
  const int64_t chunk = whole.shape(axis) / (2 * size);
  const Tensor own[] = {whole.narrow(axis, rank * chunk, chunk),
                        whole.narrow(axis, (2 * size - 1 - rank) * chunk, chunk)};
  return cat(own, axis);
}

// ---- The ring ----------------------------------------------------------------------------------

struct Shift {
  std::vector<Tensor> received;
  Work work;
};

// Sends tensors to the next rank, and receives those of the rank before, all at once.
Shift shift(std::vector<Tensor> sent, const ProcessGroup& group) {
  if (group.size() == 1 || sent.empty()) return {std::move(sent), Work()};
  const uint32_t next = (group.rank() + 1) % group.size();
  const uint32_t previous = (group.rank() + group.size() - 1) % group.size();
  Shift shift;
  std::vector<Collective> calls;
  for (const Tensor& tensor : sent) {
    shift.received.push_back(empty(tensor.shape(), tensor.dtype(), tensor.device()));
    calls.push_back(Collective::send_to(tensor, next));
    calls.push_back(Collective::receive_from(shift.received.back(), previous));
  }
  shift.work = group.submit(calls);
  return shift;
}

// The queries of a rank that see keys of a block, and these keys: [begin, begin + count).
struct Seen {
  int64_t query_begin, query_count, key_count;
  Causal causal;

  Tensor queries(const Tensor& x) const { return x.narrow(2, query_begin, query_count); }
  Tensor keys(const Tensor& x) const { return x.narrow(2, 0, key_count); }
};

Seen seen_in_step(uint32_t step, int64_t length, Causal causal, const ProcessGroup& group) {
  if (causal == Causal::kNone) return {0, length, length, Causal::kNone};
  // In each part positions grow, so the block of this rank has the plain causal mask.
  if (step == 0) return {0, length, length, Causal::kTopLeft};
  const bool is_of_earlier_rank = step <= group.rank();
  if (is_of_earlier_rank) return {0, length, length / 2, Causal::kNone};
  return {length / 2, length / 2, length, Causal::kNone};
}

// Adds a partial result to `y`, each being weighted with its share of the sum of exponentials.
void merge(const Tensor& y, const Tensor& lse, const Tensor& part, const Tensor& part_lse) {
  const Tensor most = maximum(lse, part_lse);
  const Tensor total = most + log(exp(lse - most) + exp(part_lse - most));
  y.copy_from(y * exp(lse - total).unsqueeze(-1) +
              part.to(y.dtype()) * exp(part_lse - total).unsqueeze(-1));
  lse.copy_from(total);
}

void add_to(const Tensor& sum, const Tensor& part) { sum.copy_from(sum + part.to(sum.dtype())); }

// What the backward needs. All of it is contiguous, and outside of the graph.
struct Ring {
  Tensor q, k, v, y, lse;
  double scale;
  Causal causal;
  ProcessGroup group;

  void forward();
  std::vector<Tensor> backward(const Tensor& gradient) const;
};

void Ring::forward() {
  std::vector<Tensor> block{k, v};
  Tensor sum;
  for (uint32_t step = 0; step < group.size(); ++step) {
    const bool is_last = step + 1 == group.size();
    const Shift next = shift(is_last ? std::vector<Tensor>() : block, group);
    const Seen seen = seen_in_step(step, q.shape(2), causal, group);
    Tensor part_lse;
    const Tensor part = sdpa(seen.queries(q), seen.keys(block[0]), seen.keys(block[1]), scale, {},
                             {}, seen.causal, &part_lse);
    if (step == 0) {
      lse = part_lse;
      sum = part.to(lse.dtype());
    } else {
      merge(seen.queries(sum), seen.queries(lse), part, part_lse);
    }
    next.work.join();
    block = next.received;
  }
  y = sum.to(q.dtype());
}

// The gradients of a block travel one step behind it, and come home with one more step.
std::vector<Tensor> Ring::backward(const Tensor& gradient) const {
  const NoGradGuard no_grad;
  const Tensor grad_y = gradient.detach();
  const Tensor grad_q = zeros(q.shape(), lse.dtype(), q.device());
  std::vector<Tensor> block{k, v}, sums;
  for (uint32_t step = 0; step < group.size(); ++step) {
    const bool is_last = step + 1 == group.size();
    std::vector<Tensor> sent = is_last ? std::vector<Tensor>() : block;
    sent.insert(sent.end(), sums.begin(), sums.end());
    const Shift moved = shift(std::move(sent), group);
    const Seen seen = seen_in_step(step, q.shape(2), causal, group);
    Tensor grad_k, grad_v;
    const Tensor part = sdpa_backward(seen.queries(grad_y), seen.queries(q), seen.keys(block[0]),
                                      seen.keys(block[1]), seen.queries(y), seen.queries(lse),
                                      scale, {}, {}, seen.causal, &grad_k, &grad_v);
    add_to(seen.queries(grad_q), part);
    moved.work.join();
    if (step == 0) {
      sums = {grad_k.to(lse.dtype()), grad_v.to(lse.dtype())};
    } else {
      sums.assign(moved.received.end() - 2, moved.received.end());
      add_to(seen.keys(sums[0]), grad_k);
      add_to(seen.keys(sums[1]), grad_v);
    }
    if (!is_last) block.assign(moved.received.begin(), moved.received.begin() + 2);
  }
  const Shift home = shift(sums, group);
  home.work.join();
  return {grad_q.to(q.dtype()), home.received[0].to(k.dtype()), home.received[1].to(v.dtype())};
}

// ---- All-to-all --------------------------------------------------------------------------------

// Sends part i along axis 0 to rank i, and returns what the ranks sent, by rank.
Tensor exchanged(const Tensor& parts, const ProcessGroup& group) {
  Tensor sent = parts.contiguous();
  if (group.size() == 1) return sent;
  Tensor received = empty(sent.shape(), sent.dtype(), sent.device());
  group.all_to_all(received, sent).join();
  return received;
}

// Takes (batch, heads, length / n, width), and returns (batch, heads / n, length, width).
Tensor all_positions(const Tensor& x, const ProcessGroup& group) {
  const int64_t size = group.size();
  const Tensor by_rank = x.contiguous().view({x.shape(0), size, -1, x.shape(2), x.shape(3)});
  const Tensor received = exchanged(by_rank.transpose(0, 1), group);
  std::vector<Tensor> parts;
  for (int64_t rank = 0; rank < size; ++rank) parts.push_back(received.select(0, rank));
  return in_order(parts, 2);
}

// Does the opposite.
Tensor all_heads(const Tensor& x, const ProcessGroup& group) {
  const int64_t size = group.size();
  std::vector<Tensor> parts;
  for (int64_t rank = 0; rank < size; ++rank) {
    parts.push_back(part_of_rank(x, 2, rank, size).unsqueeze(0));
  }
  const Tensor received = exchanged(cat(parts, 0), group);
  return received.transpose(0, 1).contiguous().flatten(1, 2);
}

Tensor heads_to_ranks(const Tensor& x, const ProcessGroup& group) {
  Tensor y;
  {
    const NoGradGuard no_grad;
    y = all_positions(x.detach(), group);
  }
  return with_gradient("heads_to_ranks", {&x, 1}, y, [group](const Tensor& gradient) {
    const NoGradGuard no_grad;
    return std::vector<Tensor>{all_heads(gradient.detach(), group)};
  });
}

Tensor positions_to_ranks(const Tensor& x, const ProcessGroup& group) {
  Tensor y;
  {
    const NoGradGuard no_grad;
    y = all_heads(x.detach(), group);
  }
  return with_gradient("positions_to_ranks", {&x, 1}, y, [group](const Tensor& gradient) {
    const NoGradGuard no_grad;
    return std::vector<Tensor>{all_positions(gradient.detach(), group)};
  });
}

}  // namespace

Tensor cut_sequence(const Tensor& x, int64_t axis, const ProcessGroup& group) {
  check_axis("cut_sequence", x, axis);
  const int64_t length = x.shape(axis), chunks = 2 * int64_t{group.size()};
  if (length == 0 || length % chunks != 0) {
    fail("cut_sequence: the length is " + std::to_string(length) + ", for " +
         std::to_string(group.size()) + " ranks; allowed: multiples of " + std::to_string(chunks) +
         ", since each rank has two chunks");
  }
  return part_of_rank(x, axis, group.rank(), group.size());
}

Tensor join_sequence(const Tensor& x, int64_t axis, const ProcessGroup& group) {
  check_axis("join_sequence", x, axis);
  if (x.shape(axis) == 0 || x.shape(axis) % 2 != 0) {
    fail("join_sequence: the length of the part is " + std::to_string(x.shape(axis)) +
         "; allowed: an even length, as cut_sequence() makes it");
  }
  const NoGradGuard no_grad;
  const Tensor own = x.detach().contiguous();
  std::vector<int64_t> shape = own.shape().to_vector();
  shape.insert(shape.begin(), group.size());
  const Tensor all = empty(shape, own.dtype(), own.device());
  group.all_gather(all, own).join();
  std::vector<Tensor> parts;
  for (int64_t rank = 0; rank < int64_t{group.size()}; ++rank) parts.push_back(all.select(0, rank));
  return in_order(parts, axis);
}

Tensor ring_attention(const Tensor& q, const Tensor& k, const Tensor& v, double scale,
                      Causal causal, const ProcessGroup& group) {
  check_inputs("ring_attention", q, k, v);
  const auto ring = std::make_shared<Ring>(Ring{.q = q.detach().contiguous(),
                                                .k = k.detach().contiguous(),
                                                .v = v.detach().contiguous(),
                                                .y = {},
                                                .lse = {},
                                                .scale = scale,
                                                .causal = causal,
                                                .group = group});
  {
    const NoGradGuard no_grad;
    ring->forward();
  }
  const Tensor inputs[] = {q, k, v};
  return with_gradient("ring_attention", inputs, ring->y,
                       [ring](const Tensor& gradient) { return ring->backward(gradient); });
}

Tensor all_to_all_attention(const Tensor& q, const Tensor& k, const Tensor& v, double scale,
                            Causal causal, const ProcessGroup& group) {
  check_inputs("all_to_all_attention", q, k, v);
  check_heads("the heads", q.shape(1), group);
  check_heads("the key heads", k.shape(1), group);
  const Tensor y = sdpa(heads_to_ranks(q, group), heads_to_ranks(k, group),
                        heads_to_ranks(v, group), scale, {}, {}, causal);
  return positions_to_ranks(y, group);
}

namespace {

class ContextParallelAttention : public nn::Module {
 public:
  ContextParallelAttention(int64_t width, int64_t head_count, const ProcessGroup& group,
                           ContextKind kind, const nn::AttentionOptions& options)
      : group_(group), kind_(kind), causal_(options.causal) {
    const int64_t key_heads = options.key_head_count == 0 ? head_count : options.key_head_count;
    if (head_count <= 0 || key_heads <= 0 || width <= 0 || width % head_count != 0 ||
        head_count % key_heads != 0) {
      fail("ContextParallelTransformerBlock: width is " + std::to_string(width) + ", head_count " +
           std::to_string(head_count) + " and key_head_count " + std::to_string(key_heads) +
           "; allowed: a divisor of width, and a divisor of head_count");
    }
    if (kind == ContextKind::kAllToAll) {
      check_heads("the heads", head_count, group);
      check_heads("the key heads", key_heads, group);
    }
    head_width_ = width / head_count;
    const auto project = [&](const char* name, int64_t to) {
      auto layer = std::make_shared<nn::Linear>(width, to, options.has_bias);
      add_module(name, layer);
      return layer;
    };
    query_ = project("query", width);
    key_ = project("key", key_heads * head_width_);
    value_ = project("value", key_heads * head_width_);
    out_ = project("out", width);
  }

  Tensor forward(const Tensor& x) override {
    const auto heads_of = [&](const Tensor& y) {
      return y.view({y.shape(0), y.shape(1), -1, head_width_}).transpose(1, 2);
    };
    const double scale = 1 / std::sqrt(static_cast<double>(head_width_));
    const auto attention = kind_ == ContextKind::kRing ? ring_attention : all_to_all_attention;
    const Tensor y = attention(heads_of((*query_)(x)), heads_of((*key_)(x)), heads_of((*value_)(x)),
                               scale, causal_, group_);
    return (*out_)(y.transpose(1, 2).reshape({x.shape(0), x.shape(1), -1}));
  }

 private:
  ProcessGroup group_;
  ContextKind kind_;
  Causal causal_;
  int64_t head_width_;
  std::shared_ptr<nn::Linear> query_, key_, value_, out_;
};

}  // namespace

ContextParallelTransformerBlock::ContextParallelTransformerBlock(
    int64_t width, int64_t head_count, const ProcessGroup& group, ContextKind kind,
    const nn::TransformerBlockOptions& options) {
  const int64_t hidden = options.hidden_width == 0 ? 4 * width : options.hidden_width;
  add_module("attention_norm", attention_norm_ = std::make_shared<nn::LayerNorm>(width));
  attention_ =
      std::make_shared<ContextParallelAttention>(width, head_count, group, kind, options.attention);
  add_module("attention", attention_);
  add_module("hidden_norm", hidden_norm_ = std::make_shared<nn::LayerNorm>(width));
  add_module("up", up_ = std::make_shared<nn::Linear>(width, hidden, true, options.activation));
  add_module("down", down_ = std::make_shared<nn::Linear>(hidden, width));
  add_module("dropout", dropout_ = std::make_shared<nn::Dropout>(options.dropout));
}

Tensor ContextParallelTransformerBlock::forward(const Tensor& x) {
  const Tensor attended = x + (*dropout_)((*attention_)((*attention_norm_)(x)));
  return attended + (*dropout_)((*down_)((*up_)((*hidden_norm_)(attended))));
}

}  // namespace bp::distributed
