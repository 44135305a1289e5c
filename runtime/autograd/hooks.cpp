#include "runtime/autograd/hooks.hpp"

#include <algorithm>
#include <atomic>
#include <unordered_set>

namespace bp {
namespace detail {
namespace {

std::atomic<uint64_t> last_id{0};
std::atomic<uint64_t> hook_count{0};

}  // namespace

void delete_hooks(GradHooks* hooks) noexcept { delete hooks; }

bool has_hooks() noexcept { return hook_count.load(std::memory_order_relaxed) != 0; }

void call_hooks(TensorImpl& leaf) {
  if (leaf.hooks == nullptr) return;
  retain(&leaf);
  const Tensor tensor = Tensor::adopt(&leaf);
  // A copy, since a call may make or destroy hooks.
  const auto calls = leaf.hooks->calls;
  for (const auto& [id, call] : calls) call(tensor);
}

LeafUses find_leaf_uses(std::span<const Tensor> outputs) {
  LeafUses uses;
  std::unordered_set<const Node*> seen;
  std::vector<const Node*> open;
  const auto visit = [&](const Node* node) {
    if (seen.insert(node).second) open.push_back(node);
  };
  const auto use = [&](const TensorImpl* leaf, uint64_t sequence) {
    const auto [entry, is_new] = uses.emplace(leaf, sequence);
    if (!is_new) entry->second = std::min(entry->second, sequence);
  };
  for (const Tensor& output : outputs) {
    if (!requires_grad(output)) continue;
    const TensorImpl& impl = *output.impl();
    if (impl.grad_fn == nullptr) {
      use(&impl, impl.sequence);
    } else {
      visit(impl.grad_fn);
    }
  }
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    for (uint32_t i = 0; i < node->input_count(); ++i) {
      if (!node->needs(i)) continue;
      const Edge& edge = node->edge(i);
      if (edge.node != nullptr) {
        visit(edge.node);
      } else {
        use(edge.leaf, node->sequence());
      }
    }
  }
  return uses;
}

}  // namespace detail

GradHook::GradHook(const Tensor& leaf, std::function<void(const Tensor& leaf)> call)
    : leaf_(leaf), id_(++detail::last_id) {
  if (!leaf.is_leaf() || !leaf.requires_grad()) {
    detail::fail(
        "GradHook: the tensor is not a leaf that requires a gradient; allowed: such a "
        "leaf");
  }
  detail::TensorImpl& impl = *leaf.impl();
  if (impl.hooks == nullptr) impl.hooks = new detail::GradHooks;
  impl.hooks->calls.emplace_back(id_, std::move(call));
  ++detail::hook_count;
}

GradHook::~GradHook() {
  if (!leaf_) return;
  std::erase_if(leaf_.impl()->hooks->calls, [&](const auto& entry) { return entry.first == id_; });
  --detail::hook_count;
}

GradHook::GradHook(GradHook&& other) noexcept : leaf_(std::move(other.leaf_)), id_(other.id_) {}

GradHook& GradHook::operator=(GradHook&& other) noexcept {
  std::swap(leaf_, other.leaf_);
  std::swap(id_, other.id_);
  return *this;
}

}  // namespace bp
