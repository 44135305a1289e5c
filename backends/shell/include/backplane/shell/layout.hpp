// Layouts of a backend: descriptions with a reference count, the blobs that stand for them in other
// processes, and the entries of bp_layout_ops that are the same for all backends. layout_front.hpp
// makes the table.
//
// Two layouts with equal blobs are one object here. A launch reads the blob of its layout, so any
// instance may have made the layout.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "backplane/layout.h"

namespace bp {

// The description of a layout. The backend defines what its words mean.
struct LayoutForm {
  bp_layout_kind kind = BP_LAYOUT_KIND_VENDOR;
  uint32_t variant = 0;
  bp_dtype dtype = 0;
  uint32_t ndim = 0;
  std::array<int64_t, BP_MAX_RANK> shape{};
  std::array<uint64_t, 8> words{};

  bool operator==(const LayoutForm&) const = default;
};

// Returns a form of one kind for the elements of `tensor`, whose words are 0.
LayoutForm form_like(const bp_tensor& tensor, bp_layout_kind kind, uint32_t variant);

// What the backend says about a form.
struct LayoutFacts {
  std::string name;
  uint64_t physical_size_bytes = 0, alignment_bytes = 1;

  // Of the layout's description; a layout of kind VENDOR has none.
  std::array<int64_t, BP_MAX_RANK> block_shape{};
  bp_dtype scale_dtype = 0;
  const char* format_name = nullptr;
};

struct LayoutBackend {
  const bp_host* host;
  std::string identity;  // Names the backend, its version, and all that decides what words mean.

  // Returns the facts of a form. Throws StatusError of BP_INCOMPATIBLE if the backend does not have
  // this form.
  std::function<LayoutFacts(const LayoutForm& form)> facts_of;

  // Returns the form of a description that read_layout_desc() gave, if the backend has such a
  // layout, and the layouts that it has, for a text.
  std::function<std::optional<LayoutForm>(const bp_layout_desc& desc)> described_form = {};
  std::function<std::string()> described_layouts = {};
};

// Both sides of a conversion. A side without a form lies by strides.
struct Conversion {
  const bp_tensor& dst;
  const bp_tensor& src;
  std::optional<LayoutForm> dst_form, src_form;
};

// The layouts of one instance. The class is thread-safe.
class Layouts {
 public:
  explicit Layouts(LayoutBackend backend);
  Layouts(const Layouts&) = delete;
  ~Layouts();  // Frees what the host did not release.

  // Returns the layout of `form`, and adds one reference to it.
  const bp_layout* make(const LayoutForm& form);

  // Returns the layout of a description of the host, and adds one reference to it. `subject` begins
  // the error text.
  const bp_layout* from_desc(const bp_layout_desc* desc, const std::string& subject);

  // Reads a blob. Throws StatusError of BP_INCOMPATIBLE if the blob is damaged, or of another
  // backend or version.
  LayoutForm read(const void* blob, uint64_t size_bytes, const char* what) const;

  // Returns the form of a tensor that has a layout. The layout must fit the tensor's shape, dtype
  // and offset. `what` begins the error text.
  LayoutForm form_of(const bp_tensor& tensor, const std::string& what) const;

  // Returns the facts of a layout that the host passed in. `what` begins the error text.
  LayoutFacts facts_of(const bp_layout& layout, const std::string& what) const;

  // Checks the arguments of convert(). The two tensors have equal shape and dtype, each has a
  // layout or strides, and no two elements of `dst` lie in one place.
  Conversion read_conversion(const bp_tensor* dst, const bp_tensor* src) const;

  // The kernel that stands for a conversion in a capture. offer_layouts() sets it.
  bp_kernel conversion_kernel{};

  // The entries of bp_layout_ops.
  bp_status from_blob(const void* blob, uint64_t blob_size_bytes, const bp_layout** out_layout);
  bp_status equal(const bp_layout* a, const bp_layout* b, uint32_t* out_equal) const;
  bp_status retain(const bp_layout* layout);
  bp_status release(const bp_layout* layout);

 private:
  struct Layout;

  std::string blob_of(const LayoutForm& form) const;
  LayoutForm form_of(const bp_layout& layout, const std::string& what) const;
  Layout& find(const bp_layout* layout, const char* call);

  const LayoutBackend backend_;
  std::mutex mutex_;  // It guards the members below.
  std::map<std::string, std::unique_ptr<Layout>> by_blob_;
};

}  // namespace bp
