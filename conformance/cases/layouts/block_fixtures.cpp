#include "conformance/cases/layouts/block_fixtures.hpp"

namespace bp::conformance {

bp_status describe(Context& t, const bp_layout_desc& desc, const bp_layout** out) {
  const bp_layout_ops& layouts = layout_table(t);
  return layouts.from_desc(layouts.self, t.target().device, &desc, out);
}

OwnedLayout layout_of_desc(Context& t, const bp_layout_desc& desc) {
  const bp_layout* layout = nullptr;
  t.require_ok(describe(t, desc, &layout), "layout.from_desc");
  t.require(layout != nullptr, "layout.from_desc sets *out_layout");
  return OwnedLayout(layout, {&layout_table(t)});
}

std::vector<const BlockFormat*> formats_of(Context& t) {
  std::vector<const BlockFormat*> formats;
  for (const BlockFormat& format : reference::kBlockFormats) {
    const Description description(format, {2, format.elements});
    const bp_layout* layout = nullptr;
    const bp_status status = describe(t, description.desc, &layout);
    if (status == BP_UNSUPPORTED) {
      bp_error_clear();
      continue;
    }
    t.require_ok(status, "layout.from_desc of " + description.name);
    const OwnedLayout owned(layout, {&layout_table(t)});
    formats.push_back(&format);
  }
  if (formats.empty()) t.not_supported("the backend has none of the formats of blocks");
  t.metric("formats", static_cast<double>(formats.size()));
  return formats;
}

int64_t byte_count(const BlockFormat& format, const Shape& shape) {
  return element_count(shape) / format.elements * format.bytes;
}

std::vector<uint8_t> random_blocks(Context& t, const BlockFormat& format, const Shape& shape) {
  return random_bytes(t, static_cast<uint64_t>(byte_count(format, shape)),
                      static_cast<uint64_t>(format.bytes));
}

}  // namespace bp::conformance
