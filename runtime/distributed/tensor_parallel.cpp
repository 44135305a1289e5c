// Each rank computes a part of a product, so that only activations travel (Shoeybi et al. 2019,
// "Megatron-LM"): a product by columns, what is done element by element, and a product by rows need
// one sum forward, and one backward.
#include "backplane/runtime/distributed/tensor_parallel.hpp"

#include <cmath>

#include "backplane/runtime/autograd.hpp"
#include "backplane/runtime/error.hpp"

namespace bp::distributed {
namespace {

[[noreturn]] void fail(const std::string& what) { throw Error(BP_INVALID_ARGUMENT, what); }

Tensor summed(const Tensor& x, const ProcessGroup& group) {
  const NoGradGuard no_grad;
  Tensor sum = x.detach().clone();
  group.all_reduce(sum, Reduction::kSum).join();
  return sum;
}

void check_multiple(const char* layer, const char* what, int64_t value, const ProcessGroup& group) {
  if (value > 0 && value % int64_t{group.size()} == 0) return;
  fail(std::string(layer) + ": " + what + " is " + std::to_string(value) +
       "; allowed: multiples of the number of ranks, which is " + std::to_string(group.size()));
}

Tensor only(const nn::Module& module, const std::string& name) {
  for (const auto& [own, tensor] : module.named_parameters()) {
    if (own == name) return tensor.detach();
  }
  return {};
}

}  // namespace

Tensor share_with_ranks(const Tensor& x, const ProcessGroup& group) {
  return with_gradient("share_with_ranks", {&x, 1}, x.detach(), [group](const Tensor& gradient) {
    return std::vector<Tensor>{summed(gradient, group)};
  });
}

Tensor sum_over_ranks(const Tensor& x, const ProcessGroup& group) {
  return with_gradient("sum_over_ranks", {&x, 1}, summed(x, group),
                       [](const Tensor& gradient) { return std::vector<Tensor>{gradient}; });
}

Tensor parallel_cross_entropy(const Tensor& logits, const Tensor& targets, int64_t class_count,
                              const ProcessGroup& group) {
  const Part classes = part_of(class_count, group);
  if (logits.ndim() != 2 || logits.shape(1) != classes.count() || targets.ndim() != 1 ||
      targets.shape(0) != logits.shape(0)) {
    fail("parallel_cross_entropy: logits have the shape " + to_string(logits.shape()) +
         " and targets " + to_string(targets.shape()) + "; allowed: (n, " +
         std::to_string(classes.count()) + ") and (n,), for this part of " +
         std::to_string(class_count) + " classes");
  }
  Tensor loss, probabilities, chosen;
  {
    const NoGradGuard no_grad;
    const Tensor wide = logits.detach().to(BP_F32);
    const Tensor most = amax(wide, {1}, true);
    group.all_reduce(most, bp::distributed::Reduction::kMax).join();
    const Tensor shifted = wide - most;
    const Tensor powers = exp(shifted);
    const Tensor own = arange(classes.count(), BP_I64, logits.device()) + classes.begin;
    chosen = eq(targets.to(BP_I64).unsqueeze(1), own);
    const Tensor total = sum(powers, {1}, true);
    const Tensor picked = sum(where(chosen, shifted, 0), {1}, true);
    const Collective calls[] = {Collective::all_reduce(total), Collective::all_reduce(picked)};
    group.submit(calls).join();
    loss = mean(log(total) - picked);
    probabilities = powers / total;
  }
  const auto backward = [probabilities, chosen, dtype = logits.dtype()](const Tensor& gradient) {
    const double count = static_cast<double>(probabilities.shape(0));
    const Tensor difference = probabilities - chosen.to(BP_F32);
    return std::vector<Tensor>{(difference * (gradient / count)).to(dtype)};
  };
  return with_gradient("parallel_cross_entropy", {&logits, 1}, loss, backward);
}

Part part_of(int64_t extent, const ProcessGroup& group) {
  const int64_t size = group.size(), rank = group.rank();
  return {extent * rank / size, extent * (rank + 1) / size};
}

Tensor ParallelModule::add_part(const std::string& name, const Tensor& whole, int64_t axis,
                                const ProcessGroup& group) {
  const Part part = part_of(whole.shape(axis), group);
  if (whole.shape(axis) < int64_t{group.size()}) {
    fail("parameter '" + name + "' of the shape " + to_string(whole.shape()) + " is cut over " +
         std::to_string(group.size()) + " ranks; allowed: at least one row for each rank");
  }
  cut_axes_[name] = axis;
  const NoGradGuard no_grad;
  return add_parameter(name, whole.detach().narrow(axis, part.begin, part.count()).clone());
}

ColumnParallelLinear::ColumnParallelLinear(int64_t in_features, int64_t out_features,
                                           const ProcessGroup& group,
                                           const ColumnParallelOptions& options)
    : group_(group), options_(options) {
  const nn::Linear whole(in_features, out_features, options.has_bias);
  weight_ = add_part("weight", only(whole, "weight"), 0, group);
  if (options.has_bias) bias_ = add_part("bias", only(whole, "bias"), 0, group);
}

Tensor ColumnParallelLinear::forward(const Tensor& x) {
  return linear(options_.is_shared ? x : share_with_ranks(x, group_), weight_, bias_,
                options_.activation);
}

RowParallelLinear::RowParallelLinear(int64_t in_features, int64_t out_features,
                                     const ProcessGroup& group, bool has_bias)
    : group_(group) {
  const nn::Linear whole(in_features, out_features, has_bias);
  weight_ = add_part("weight", only(whole, "weight"), 1, group);
  if (has_bias) bias_ = add_parameter("bias", only(whole, "bias").clone());
}

Tensor RowParallelLinear::forward(const Tensor& x) {
  const Tensor y = sum_over_ranks(linear(x, weight_), group_);
  return bias_ ? y + bias_ : y;
}

VocabularyParallelEmbedding::VocabularyParallelEmbedding(int64_t num_embeddings, int64_t width,
                                                         const ProcessGroup& group,
                                                         double deviation)
    : group_(group), rows_(part_of(num_embeddings, group)) {
  const nn::Embedding whole(num_embeddings, width, deviation);
  weight_ = add_part("weight", only(whole, "weight"), 0, group);
}

Tensor VocabularyParallelEmbedding::forward(const Tensor& indices) {
  const Tensor own = indices.to(BP_I64) - rows_.begin;
  const Tensor inside = minimum(maximum(own, 0), rows_.count() - 1);
  const Tensor is_own = eq(own, inside).unsqueeze(-1);
  return sum_over_ranks(where(is_own, embedding(weight_, inside), 0), group_);
}

namespace {

// Attention of the heads of this rank.
class ParallelAttention : public nn::Module {
 public:
  ParallelAttention(int64_t width, int64_t head_count, const ProcessGroup& group,
                    const nn::AttentionOptions& options)
      : group_(group),
        head_width_(head_count > 0 ? width / head_count : 0),
        causal_(options.causal) {
    const int64_t key_heads = options.key_head_count == 0 ? head_count : options.key_head_count;
    check_multiple("ParallelTransformerBlock", "head_count", head_count, group);
    check_multiple("ParallelTransformerBlock", "key_head_count", key_heads, group);
    if (width % head_count != 0 || head_count % key_heads != 0) {
      fail("ParallelTransformerBlock: width is " + std::to_string(width) + ", head_count " +
           std::to_string(head_count) + " and key_head_count " + std::to_string(key_heads) +
           "; allowed: a divisor of width, and a divisor of head_count");
    }
    const auto project = [&](const char* name, int64_t to) {
      auto layer = std::make_shared<ColumnParallelLinear>(
          width, to, group, ColumnParallelOptions{.has_bias = options.has_bias, .is_shared = true});
      add_module(name, layer);
      return layer;
    };
    query_ = project("query", width);
    key_ = project("key", key_heads * head_width_);
    value_ = project("value", key_heads * head_width_);
    out_ = std::make_shared<RowParallelLinear>(width, width, group, options.has_bias);
    add_module("out", out_);
  }

  Tensor forward(const Tensor& x) override {
    const auto heads_of = [&](const Tensor& y) {
      return y.view({y.shape(0), y.shape(1), -1, head_width_}).transpose(1, 2);
    };
    const Tensor shared = share_with_ranks(x, group_);
    const double scale = 1 / std::sqrt(static_cast<double>(head_width_));
    const Tensor y = sdpa(heads_of((*query_)(shared)), heads_of((*key_)(shared)),
                          heads_of((*value_)(shared)), scale, {}, {}, causal_);
    return (*out_)(y.transpose(1, 2).reshape({x.shape(0), x.shape(1), -1}));
  }

 private:
  ProcessGroup group_;
  int64_t head_width_;
  Causal causal_;
  std::shared_ptr<ColumnParallelLinear> query_, key_, value_;
  std::shared_ptr<RowParallelLinear> out_;
};

}  // namespace

ParallelTransformerBlock::ParallelTransformerBlock(int64_t width, int64_t head_count,
                                                   const ProcessGroup& group,
                                                   const nn::TransformerBlockOptions& options) {
  const int64_t hidden = options.hidden_width == 0 ? 4 * width : options.hidden_width;
  check_multiple("ParallelTransformerBlock", "hidden_width", hidden, group);
  add_module("attention_norm", attention_norm_ = std::make_shared<nn::LayerNorm>(width));
  attention_ = std::make_shared<ParallelAttention>(width, head_count, group, options.attention);
  add_module("attention", attention_);
  add_module("hidden_norm", hidden_norm_ = std::make_shared<nn::LayerNorm>(width));
  up_ = std::make_shared<ColumnParallelLinear>(
      width, hidden, group, ColumnParallelOptions{.activation = options.activation});
  add_module("up", up_);
  add_module("down", down_ = std::make_shared<RowParallelLinear>(hidden, width, group));
  add_module("dropout", dropout_ = std::make_shared<nn::Dropout>(options.dropout));
}

Tensor ParallelTransformerBlock::forward(const Tensor& x) {
  const Tensor attended = x + (*dropout_)((*attention_)((*attention_norm_)(x)));
  return attended + (*dropout_)((*down_)((*up_)((*hidden_norm_)(attended))));
}

}  // namespace bp::distributed
