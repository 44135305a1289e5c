// Layouts of a backend: counted descriptions, the blobs that stand for them in other processes, and
// the entries of bp_layout_ops that are alike everywhere.
//
// A layout is what its blob says: two with equal blobs are one object here, and a launch reads the
// blob of the layout it is given, whichever instance made that.
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

// What a layout is, without its memory: the words mean what the backend says.
struct LayoutForm {
  bp_layout_kind kind = BP_LAYOUT_KIND_VENDOR;
  uint32_t variant = 0;
  bp_dtype dtype = 0;
  uint32_t ndim = 0;
  std::array<int64_t, BP_MAX_RANK> shape{};
  std::array<uint64_t, 8> words{};

  bool operator==(const LayoutForm&) const = default;
};

// The form of one kind for the elements of `tensor`; the words are 0.
LayoutForm form_like(const bp_tensor& tensor, bp_layout_kind kind, uint32_t variant);

// What the backend says of a form.
struct LayoutFacts {
  std::string name;
  uint64_t physical_size_bytes = 0, alignment_bytes = 1;
};

struct LayoutBackend {
  const bp_host* host;
  std::string identity;  // Of the backend, its version and what else decides what words mean.

  // Throws StatusError of BP_INCOMPATIBLE for a form that it does not have.
  std::function<LayoutFacts(const LayoutForm& form)> facts_of;
};

// Both sides of a conversion; no form is strides.
struct Conversion {
  const bp_tensor& dst;
  const bp_tensor& src;
  std::optional<LayoutForm> dst_form, src_form;
};

// Thread-safe.
class Layouts {
 public:
  explicit Layouts(LayoutBackend backend);
  Layouts(const Layouts&) = delete;
  ~Layouts();  // Ends what the host did not release.

  // With one reference more.
  const bp_layout* make(const LayoutForm& form);

  // Throws StatusError of BP_INCOMPATIBLE for a blob that is damaged, or of another backend or
  // version.
  LayoutForm read(const void* blob, uint64_t size_bytes, const char* what) const;

  // The form of a tensor that has a layout, which has to fit its shape, dtype and offset. `what`
  // begins the sentence of a refusal.
  LayoutForm form_of(const bp_tensor& tensor, const std::string& what) const;

  // The arguments of convert(), checked: two tensors of equal shape and dtype, each in a layout of
  // its own or by strides, and no two elements of `dst` in one place.
  Conversion read_conversion(const bp_tensor* dst, const bp_tensor* src) const;

  // The entries of bp_layout_ops.
  bp_status from_blob(const void* blob, uint64_t blob_size_bytes, const bp_layout** out_layout);
  bp_status equal(const bp_layout* a, const bp_layout* b, uint32_t* out_equal) const;
  bp_status retain(const bp_layout* layout);
  bp_status release(const bp_layout* layout);

 private:
  struct Layout;

  std::string blob_of(const LayoutForm& form) const;
  Layout& find(const bp_layout* layout, const char* call);

  const LayoutBackend backend_;
  std::mutex mutex_;  // Guards what follows.
  std::map<std::string, std::unique_ptr<Layout>> by_blob_;
};

// The entries of a table whose self has Layouts, found by `kLayoutsOf`; the backend adds
// preferred() and convert().
template <Layouts& (*kLayoutsOf)(void* self)>
bp_layout_ops layout_table() {
  bp_layout_ops table{};
  table.struct_size = sizeof(table);
  table.struct_type = BP_STRUCT_LAYOUT_OPS;
  table.equal = [](void* self, const bp_layout* a, const bp_layout* b, uint32_t* out_equal) {
    return kLayoutsOf(self).equal(a, b, out_equal);
  };
  table.retain = [](void* self, const bp_layout* layout) {
    return kLayoutsOf(self).retain(layout);
  };
  table.release = [](void* self, const bp_layout* layout) {
    return kLayoutsOf(self).release(layout);
  };
  return table;
}

}  // namespace bp
