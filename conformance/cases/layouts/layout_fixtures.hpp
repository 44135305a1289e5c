// What the cases of layouts share: layouts that end with the case, tensors that lie in one, and the
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

// Ends the case as NotSupported for a device without the table.
const bp_layout_ops& layout_table(Context& t);

struct LayoutEnd {
  const bp_layout_ops* ops;
  void operator()(const bp_layout* layout) const {
    static_cast<void>(ops->release(ops->self, layout));
  }
};
using OwnedLayout = std::unique_ptr<const bp_layout, LayoutEnd>;

// What the kernel prefers for a tensor argument, counted as in the frame; NULL is strides.
OwnedLayout preferred_layout(Context& t, const bp_kernel& kernel, uint32_t argument,
                             const void* args);

// The number of `member` among the tensor arguments of the op.
uint32_t tensor_argument(uint32_t op, std::string_view member);

std::vector<uint8_t> blob_of(const bp_layout& layout);
OwnedLayout layout_of_blob(Context& t, const std::vector<uint8_t>& blob);
bool are_equal(Context& t, const bp_layout* a, const bp_layout* b);

// A layout that some kernel prefers, and for what.
struct LayoutSite {
  std::string where;
  bp_dtype dtype = 0;
  Shape shape;
  OwnedLayout layout;
};

// One for each dtype and shape that calls of the suite have, small shapes and empty ones among
// them. Ends the case as NotSupported where no kernel prefers any.
std::vector<LayoutSite> layout_sites(Context& t);

// "tiles of f32 17x33 (op..., argument a)".
std::string site_text(const LayoutSite& site);

// Elements for a tensor of the site: values that every dtype holds exactly, so that they compare by
// their bits.
std::vector<DoubleDouble> values_of(Context& t, bp_dtype dtype, const Shape& shape);

// Memory of such a tensor by strides.
GuardedTensor make_strided(Context& t, bp_stream* stream, const LayoutSite& site, Layout layout);

// Device memory of a tensor in a layout, with a pattern on both sides. Its strides are numbers that
// nobody may use.
class LaidTensor {
 public:
  LaidTensor(const MemoryPlace& place, const bp_layout& layout, bp_dtype dtype, Shape shape);

  const bp_tensor* view() const { return &view_; }
  bp_buffer_ref ref() const { return memory_.ref(); }
  void poison(Poison poison);

  // After the work has ended: a sentence about memory outside of it that changed; "" if none did.
  std::string damage(std::string_view name);

  // Whether all of its bytes are what they were.
  bool is_unchanged();

 private:
  const Shape shape_;
  const std::vector<int64_t> strides_;
  GuardedTensor memory_;
  bp_tensor view_{};
};

// Submits a conversion; ends the case if it is refused.
void convert(Context& t, bp_stream* stream, const bp_tensor* dst, const bp_tensor* src);

}  // namespace bp::conformance
