// Helpers for the cases of layouts: layouts that end with the case, tensors in a layout, and the
// layouts that the kernels of a device prefer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "conformance/cases/fixtures/fixtures.hpp"
#include "conformance/cases/ops/op_families.hpp"
#include "conformance/memory/guarded_tensor.hpp"

namespace bp::conformance {

// Returns the table of layouts. Ends the case as NotSupported if the device has none.
const bp_layout_ops& layout_table(Context& t);

struct LayoutEnd {
  const bp_layout_ops* ops;
  void operator()(const bp_layout* layout) const {
    static_cast<void>(ops->release(ops->self, layout));
  }
};
using OwnedLayout = std::unique_ptr<const bp_layout, LayoutEnd>;

// Returns the layout that the kernel prefers for a tensor argument, counted as in the frame; NULL
// is strides.
OwnedLayout preferred_layout(Context& t, const bp_kernel& kernel, uint32_t argument,
                             const void* args);

// Returns the number of `member` among the tensor arguments of the op.
uint32_t tensor_argument(uint32_t op, std::string_view member);

std::vector<uint8_t> blob_of(const bp_layout& layout);
OwnedLayout layout_of_blob(Context& t, const std::vector<uint8_t>& blob);
bool are_equal(Context& t, const bp_layout* a, const bp_layout* b);

// A layout that some kernel prefers, and the tensor for which it does.
struct LayoutSite {
  std::string where;
  bp_dtype dtype = 0;
  Shape shape;
  OwnedLayout layout;
};

// Returns a site for each dtype and shape that calls of the suite have, with small and empty shapes
// among them. Ends the case as NotSupported if no kernel prefers a layout.
std::vector<LayoutSite> layout_sites(Context& t);

// Returns a text such as "tiles of f32 17x33 (op..., argument a)".
std::string site_text(const LayoutSite& site);

// Returns elements for a tensor of the site. Every dtype holds the values exactly, so that elements
// can be compared by their bits.
std::vector<DoubleDouble> values_of(Context& t, bp_dtype dtype, const Shape& shape);

// Makes memory for a tensor of the site whose layout is strides.
GuardedTensor make_strided(Context& t, bp_stream* stream, const LayoutSite& site, Layout layout);

// Device memory of a tensor in a layout, with a pattern on both sides. Its strides are invalid,
// because nobody may use them.
class LaidTensor {
 public:
  LaidTensor(const MemoryPlace& place, const bp_layout& layout, bp_dtype dtype, Shape shape);

  const bp_tensor* view() const { return &view_; }
  bp_buffer_ref ref() const { return memory_.ref(); }
  void poison(Poison poison);

  // Call it after the work has ended. Returns a sentence about changed memory outside the tensor;
  // "" if none changed.
  std::string damage(std::string_view name);

  // Returns whether none of the tensor's bytes has changed.
  bool is_unchanged();

 private:
  const Shape shape_;
  const std::vector<int64_t> strides_;
  GuardedTensor memory_;
  bp_tensor view_{};
};

// Submits a conversion. Ends the case if it is refused.
void convert(Context& t, bp_stream* stream, const bp_tensor* dst, const bp_tensor* src);

}  // namespace bp::conformance
