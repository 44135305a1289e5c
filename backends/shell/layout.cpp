#include "backplane/shell/layout.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>

#include "backplane/shell/block_layout.hpp"
#include "backplane/shell/boundary.hpp"
#include "backplane/shell/shape.hpp"

namespace bp {
namespace {

constexpr char kMagic[8] = {'B', 'P', 'L', 'A', 'Y', 'O', 'U', 'T'};
constexpr uint32_t kBlobVersion = 1;

// A blob in the byte order of the machine that wrote it. A machine of another byte order does not
// find the version.
struct Blob {
  char magic[8];
  uint32_t version, size_bytes;
  char identity[128];  // Zeros fill the rest.
  uint32_t kind, variant, dtype, ndim;
  int64_t shape[BP_MAX_RANK];
  uint64_t words[8];
  uint64_t checksum;  // Covers all members above.
};
static_assert(sizeof(Blob) == 296, "a blob has no padding: all of its bytes are compared");

// Returns the FNV-1a hash of the words. Each step is a bijection, so a change of a single word
// always changes the hash.
uint64_t checksum_of(const Blob& blob) {
  uint64_t sum = 0xCBF29CE484222325;
  for (size_t i = 0; i < offsetof(Blob, checksum); i += sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, reinterpret_cast<const std::byte*>(&blob) + i, sizeof(word));
    sum = (sum ^ word) * 0x100000001B3;
  }
  return sum;
}

[[noreturn]] void incompatible(const char* what, const std::string& why) {
  throw StatusError(BP_INCOMPATIBLE, std::string(what) + ": " + why);
}

[[noreturn]] void invalid(const std::string& text) { throw StatusError(BP_INVALID_ARGUMENT, text); }

// Throws StatusError unless the shape of the tensor can be read.
void check_tensor(const bp_tensor* tensor, const std::string& what) {
  if (tensor == nullptr) invalid(what + " is NULL");
  if (tensor->ndim > BP_MAX_RANK) {
    invalid(what + " has rank " + std::to_string(tensor->ndim) + "; allowed is at most " +
            std::to_string(BP_MAX_RANK));
  }
  if (tensor->ndim != 0 && tensor->shape == nullptr) invalid(what + ": its shape is NULL");
  for (uint32_t axis = 0; axis < tensor->ndim; ++axis) {
    if (tensor->shape[axis] < 0) {
      invalid(what + " has shape " + shape_text(tensor->ndim, tensor->shape) +
              "; extents are 0 or more");
    }
  }
}

// Returns whether two elements share a place because a stride is 0.
bool repeats(const bp_tensor& tensor) {
  if (element_count(tensor) == 0) return false;
  for (uint32_t axis = 0; axis < tensor.ndim; ++axis) {
    if (tensor.shape[axis] > 1 && tensor.strides[axis] == 0) return true;
  }
  return false;
}

}  // namespace

// A layout points to its own members, so it is never moved.
struct Layouts::Layout {
  Layout(const LayoutForm& its_form, const LayoutFacts& its_facts, std::string its_blob)
      : form(its_form), facts(its_facts), blob(std::move(its_blob)) {
    desc = {.struct_size = sizeof(bp_layout_desc),
            .struct_type = BP_STRUCT_LAYOUT_DESC,
            .next = nullptr,
            .shape = form.shape.data(),
            .block_shape = facts.block_shape.data(),
            .ndim = form.ndim,
            .kind = form.kind,
            .dtype = form.dtype,
            .scale_dtype = facts.scale_dtype,
            .format_name = facts.format_name};
    offer = {.struct_size = sizeof(bp_layout),
             .struct_type = BP_STRUCT_LAYOUT,
             .next = nullptr,
             .name = facts.name.c_str(),
             .physical_size_bytes = facts.physical_size_bytes,
             .alignment_bytes = facts.alignment_bytes,
             .blob = blob.data(),
             .blob_size_bytes = blob.size(),
             .kind = form.kind,
             .dtype = form.dtype,
             .desc = form.kind == BP_LAYOUT_KIND_VENDOR ? nullptr : &desc};
  }
  Layout(const Layout&) = delete;

  const LayoutForm form;
  const LayoutFacts facts;
  const std::string blob;
  bp_layout_desc desc{};
  bp_layout offer{};
  uint64_t references = 0;
};

LayoutForm form_like(const bp_tensor& tensor, bp_layout_kind kind, uint32_t variant) {
  LayoutForm form{.kind = kind, .variant = variant, .dtype = tensor.dtype, .ndim = tensor.ndim};
  std::copy_n(tensor.shape, tensor.ndim, form.shape.begin());
  return form;
}

Layouts::Layouts(LayoutBackend backend) : backend_(std::move(backend)) {}

Layouts::~Layouts() = default;

std::string Layouts::blob_of(const LayoutForm& form) const {
  Blob blob{};
  std::copy(std::begin(kMagic), std::end(kMagic), blob.magic);
  blob.version = kBlobVersion;
  blob.size_bytes = sizeof(Blob);
  std::copy_n(backend_.identity.data(),
              std::min(backend_.identity.size(), sizeof(blob.identity) - 1), blob.identity);
  blob.kind = form.kind;
  blob.variant = form.variant;
  blob.dtype = form.dtype;
  blob.ndim = form.ndim;
  std::ranges::copy(form.shape, blob.shape);
  std::ranges::copy(form.words, blob.words);
  blob.checksum = checksum_of(blob);
  return std::string(reinterpret_cast<const char*>(&blob), sizeof(blob));
}

const bp_layout* Layouts::make(const LayoutForm& form) {
  const LayoutFacts facts = backend_.facts_of(form);
  std::string blob = blob_of(form);
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Layout>& layout = by_blob_[blob];
  if (layout == nullptr) layout = std::make_unique<Layout>(form, facts, std::move(blob));
  ++layout->references;
  return &layout->offer;
}

const bp_layout* Layouts::from_desc(const bp_layout_desc* desc, const std::string& subject) {
  int64_t block_shape[BP_MAX_RANK];
  const bp_layout_desc ours = read_layout_desc(desc, block_shape, subject);
  const std::optional<LayoutForm> form = backend_.described_form(ours);
  if (form) return make(*form);
  throw StatusError(BP_UNSUPPORTED, subject + ": the backend has no such layout; it has " +
                                        backend_.described_layouts());
}

LayoutForm Layouts::read(const void* bytes, uint64_t size_bytes, const char* what) const {
  Blob blob;
  if (size_bytes != sizeof(blob)) {
    incompatible(what, "it has " + std::to_string(size_bytes) + " bytes; one of " +
                           backend_.identity + " has " + std::to_string(sizeof(blob)));
  }
  std::memcpy(&blob, bytes, sizeof(blob));
  if (!std::equal(std::begin(kMagic), std::end(kMagic), blob.magic)) {
    incompatible(what, "it was not made from a layout of this backend");
  }
  if (blob.version != kBlobVersion || blob.size_bytes != sizeof(blob)) {
    incompatible(what, "it is of version " + std::to_string(blob.version) + ", not " +
                           std::to_string(kBlobVersion));
  }
  if (blob.checksum != checksum_of(blob)) incompatible(what, "it is damaged");
  blob.identity[sizeof(blob.identity) - 1] = '\0';
  if (backend_.identity != blob.identity) {
    incompatible(what, "it was made by " + std::string(blob.identity) + ", and this is " +
                           backend_.identity);
  }
  LayoutForm form{.kind = blob.kind, .variant = blob.variant, .dtype = blob.dtype};
  form.ndim = blob.ndim;
  std::ranges::copy(blob.shape, form.shape.begin());
  std::ranges::copy(blob.words, form.words.begin());
  const bool is_shape =
      form.ndim <= BP_MAX_RANK && std::ranges::all_of(form.shape, [](int64_t n) { return n >= 0; });
  if (!is_shape) incompatible(what, "it is damaged");
  return form;
}

LayoutForm Layouts::form_of(const bp_layout& layout, const std::string& what) const {
  if (layout.blob == nullptr) invalid(what + " is NULL");
  return read(layout.blob, layout.blob_size_bytes, what.c_str());
}

LayoutFacts Layouts::facts_of(const bp_layout& layout, const std::string& what) const {
  return backend_.facts_of(form_of(layout, what + ": its blob"));
}

LayoutForm Layouts::form_of(const bp_tensor& tensor, const std::string& what) const {
  const bp_layout& layout = *tensor.layout;
  const std::string name = layout.name == nullptr ? "" : " \"" + std::string(layout.name) + "\"";
  const LayoutForm form = form_of(layout, what + ": the blob of its layout" + name);
  const bool is_same = form.dtype == tensor.dtype && form.ndim == tensor.ndim &&
                       std::equal(tensor.shape, tensor.shape + tensor.ndim, form.shape.begin());
  if (!is_same) {
    invalid(what + ": its layout" + name + " is for shape " +
            shape_text(form.ndim, form.shape.data()) + " of dtype " + std::to_string(form.dtype) +
            "; the tensor has " + shape_text(tensor.ndim, tensor.shape) + " of dtype " +
            std::to_string(tensor.dtype));
  }
  const LayoutFacts facts = backend_.facts_of(form);
  if (tensor.byte_offset % facts.alignment_bytes != 0) {
    invalid(what + ": byte_offset is " + std::to_string(tensor.byte_offset) +
            "; its layout asks for a multiple of " + std::to_string(facts.alignment_bytes));
  }
  return form;
}

Conversion Layouts::read_conversion(const bp_tensor* dst, const bp_tensor* src) const {
  check_tensor(dst, "layout.convert: dst");
  check_tensor(src, "layout.convert: src");
  if (dst->dtype != src->dtype) {
    invalid("layout.convert: src has dtype " + std::to_string(src->dtype) + ", dst " +
            std::to_string(dst->dtype) + "; they have to be the same");
  }
  if (!std::ranges::equal(std::span(dst->shape, dst->ndim), std::span(src->shape, src->ndim))) {
    invalid("layout.convert: src has shape " + shape_text(src->ndim, src->shape) + ", dst " +
            shape_text(dst->ndim, dst->shape) + "; they have to be the same");
  }
  Conversion conversion{*dst, *src, std::nullopt, std::nullopt};
  const auto read_side = [&](const bp_tensor& tensor, const char* what) {
    std::optional<LayoutForm> form;
    if (tensor.layout != nullptr) {
      form = form_of(tensor, what);
    } else if (tensor.ndim != 0 && tensor.strides == nullptr) {
      invalid(std::string(what) + ": it has neither strides nor a layout");
    }
    if (tensor.buffer == nullptr && element_count(tensor) != 0) {
      invalid(std::string(what) + " has elements and no buffer");
    }
    return form;
  };
  conversion.dst_form = read_side(*dst, "layout.convert: dst");
  conversion.src_form = read_side(*src, "layout.convert: src");
  if (!conversion.dst_form && repeats(*dst)) {
    invalid("layout.convert: dst has a stride of 0: several elements have one place");
  }
  return conversion;
}

bp_status Layouts::from_blob(const void* blob, uint64_t blob_size_bytes,
                             const bp_layout** out_layout) {
  if (blob == nullptr) invalid("layout.from_blob: blob is NULL");
  if (out_layout == nullptr) invalid("layout.from_blob: out_layout is NULL");
  *out_layout = make(read(blob, blob_size_bytes, "layout.from_blob: the blob"));
  return BP_OK;
}

bp_status Layouts::equal(const bp_layout* a, const bp_layout* b, uint32_t* out_equal) const {
  return guarded(*backend_.host, [&]() -> bp_status {
    if (out_equal == nullptr) invalid("layout.equal: out_equal is NULL");
    const auto bytes = [](const bp_layout* layout) {
      if (layout == nullptr || layout->blob == nullptr) return std::string_view();
      return std::string_view(static_cast<const char*>(layout->blob), layout->blob_size_bytes);
    };
    *out_equal = (a == nullptr) == (b == nullptr) && bytes(a) == bytes(b) ? 1 : 0;
    return BP_OK;
  });
}

Layouts::Layout& Layouts::find(const bp_layout* layout, const char* call) {
  for (const auto& [blob, ours] : by_blob_) {
    if (&ours->offer == layout) return *ours;
  }
  invalid(std::string(call) +
          ": layout is not one of this backend, or was released as often as it was made");
}

bp_status Layouts::retain(const bp_layout* layout) {
  return guarded(*backend_.host, [&]() -> bp_status {
    if (layout == nullptr) invalid("layout.retain: layout is NULL");
    const std::lock_guard lock(mutex_);
    ++find(layout, "layout.retain").references;
    return BP_OK;
  });
}

bp_status Layouts::release(const bp_layout* layout) {
  return guarded(*backend_.host, [&]() -> bp_status {
    if (layout == nullptr) return BP_OK;
    const std::lock_guard lock(mutex_);
    Layout& ours = find(layout, "layout.release");
    if (--ours.references == 0) by_blob_.erase(std::string(ours.blob));
    return BP_OK;
  });
}

}  // namespace bp
