// Cases for api/include/backplane/layout.h: layouts that the host describes.
#include <algorithm>
#include <bit>
#include <functional>
#include <map>

#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/layouts/block_fixtures.hpp"

namespace bp::conformance {
namespace {

// Requires that a layout says the same about itself as `want`, in words of its own.
void expect_described(Context& t, const bp_layout& layout, const BlockFormat& format,
                      const Shape& shape) {
  const std::string where = std::string(format.name) + " of " + shape_text(shape) + ": ";
  t.require(layout.desc != nullptr, where + "the layout has a description");
  const bp_layout_desc& desc = *layout.desc;
  Shape block(shape.size(), 1);
  block.back() = format.elements;
  t.expect_eq(desc.kind, bp_layout_kind{BP_LAYOUT_KIND_QUANTIZED}, where + "desc.kind");
  t.expect_eq(layout.kind, desc.kind, where + "kind");
  t.expect_eq(desc.dtype, bp_dtype{BP_F32}, where + "desc.dtype");
  t.expect_eq(layout.dtype, desc.dtype, where + "dtype");
  t.expect_eq(desc.scale_dtype, format.scale_dtype, where + "desc.scale_dtype");
  t.require(desc.ndim == shape.size(), where + "desc.ndim is the rank");
  t.expect(std::equal(shape.begin(), shape.end(), desc.shape), where + "desc.shape");
  t.expect(std::equal(block.begin(), block.end(), desc.block_shape), where + "desc.block_shape");
  t.expect(desc.format_name != nullptr && format.name == desc.format_name,
           where + "desc.format_name");
  t.expect_eq(layout.physical_size_bytes, static_cast<uint64_t>(byte_count(format, shape)),
              where + "physical_size_bytes");
  const uint64_t alignment = layout.alignment_bytes;
  t.expect(std::has_single_bit(alignment) && format.bytes % static_cast<int64_t>(alignment) == 0,
           where + "alignment_bytes divides the bytes of a block");
}

void equal_descriptions_are_one_layout(Context& t) {
  for (const BlockFormat* format : formats_of(t)) {
    const int64_t n = format->elements;
    const std::vector<Shape> shapes = {{n}, {3, 2 * n}, {2, 0, n}, {0}, {2, 1, 3 * n}};
    std::vector<OwnedLayout> all;
    for (const Shape& shape : shapes) {
      const Description first(*format, shape), second(*format, shape);
      const OwnedLayout layout = layout_of_desc(t, first.desc);
      const OwnedLayout again = layout_of_desc(t, second.desc),
                        own = layout_of_desc(t, *layout->desc);
      const std::string where = first.name + " of " + shape_text(shape) + ": ";
      t.expect(layout.get() == again.get(), where + "an equal description gives the pointer");
      t.expect(layout.get() == own.get(), where + "its own description gives the pointer");
      expect_described(t, *layout, *format, shape);
      const OwnedLayout of_blob = layout_of_blob(t, blob_of(*layout));
      t.expect(are_equal(t, of_blob.get(), layout.get()), where + "the layout of its blob");
      for (const OwnedLayout& other : all) {
        t.expect(other.get() != layout.get() && !are_equal(t, other.get(), layout.get()),
                 where + "a layout of another shape differs");
      }
      all.push_back(layout_of_desc(t, first.desc));
    }
  }
}

void tiles_have_descriptions(Context& t) {
  size_t count = 0;
  for (const LayoutSite& site : layout_sites(t)) {
    const bool is_vendor =
        site.layout->kind != BP_LAYOUT_KIND_TILED && site.layout->kind != BP_LAYOUT_KIND_QUANTIZED;
    t.expect_eq(site.layout->desc == nullptr, is_vendor, site_text(site) + ": it lacks desc");
    if (is_vendor || site.layout->desc == nullptr) continue;
    const OwnedLayout made = layout_of_desc(t, *site.layout->desc);
    t.expect(made.get() == site.layout.get(), site_text(site) + ": the layout of its description");
    ++count;
  }
  if (count == 0) t.not_supported("no kernel prefers a layout that has a description");
}

// ---- What is refused ----------------------------------------------------------------------------

using Change = std::function<void(bp_layout_desc&)>;

void expect_each_refused(Context& t, const BlockFormat& format, bp_status want,
                         const std::map<std::string, Change>& changes) {
  for (const auto& [what, change] : changes) {
    Description description(format, {2, 2 * format.elements});
    change(description.desc);
    const bp_layout* out = t.sentinel<bp_layout>();
    t.expect_refused(describe(t, description.desc, &out), want, description.name + ": " + what);
    t.expect(out == t.sentinel<bp_layout>(), what + ": out_layout is left alone");
  }
}

void descriptions_that_contradict_are_refused(Context& t) {
  const bp_layout_ops& layouts = layout_table(t);
  for (const BlockFormat* format : formats_of(t)) {
    const int64_t n = format->elements;
    const int64_t odd[2] = {2 * n, n + 1}, minus[2] = {-2, n}, wide[2] = {2, n},
                  half[2] = {1, n / 2}, huge[2] = {INT64_MAX, n}, none[2] = {0, n};
    expect_each_refused(
        t, *format, BP_INVALID_ARGUMENT,
        {{"a shape that does not divide into blocks", [&](bp_layout_desc& d) { d.shape = odd; }},
         {"a negative extent", [&](bp_layout_desc& d) { d.shape = minus; }},
         {"more bytes than 64 bits hold", [&](bp_layout_desc& d) { d.shape = huge; }},
         {"a shape that is NULL", [](bp_layout_desc& d) { d.shape = nullptr; }},
         {"no axis", [](bp_layout_desc& d) { d.ndim = 0; }},
         {"a rank of 9", [](bp_layout_desc& d) { d.ndim = BP_MAX_RANK + 1; }},
         {"blocks over two rows", [&](bp_layout_desc& d) { d.block_shape = wide; }},
         {"blocks of half the size", [&](bp_layout_desc& d) { d.block_shape = half; }},
         {"blocks of no rows", [&](bp_layout_desc& d) { d.block_shape = none; }},
         {"scales of another dtype", [](bp_layout_desc& d) { d.scale_dtype = BP_F64; }},
         {"another decoded dtype", [](bp_layout_desc& d) { d.dtype = BP_F16; }},
         {"no format", [](bp_layout_desc& d) { d.format_name = nullptr; }}});
    const Description good(*format, {2, n});
    t.expect_refused(layouts.from_desc(layouts.self, t.target().device, &good.desc, nullptr),
                     BP_INVALID_ARGUMENT, "an out_layout that is NULL");
  }
  const bp_layout* out = nullptr;
  t.expect_refused(layouts.from_desc(layouts.self, t.target().device, nullptr, &out),
                   BP_INVALID_ARGUMENT, "a description that is NULL");
}

void unknown_layouts_are_refused_by_name(Context& t) {
  const std::vector<const BlockFormat*> formats = formats_of(t);
  const int64_t tile[2] = {7, 5};
  const std::map<std::string, Change> changes = {
      {"a format that nobody has", [](bp_layout_desc& d) { d.format_name = "ggml.q7_7"; }},
      {"the empty format", [](bp_layout_desc& d) { d.format_name = ""; }},
      {"tiles of 7x5", [&](bp_layout_desc& d) {
         d.kind = BP_LAYOUT_KIND_TILED;
         d.block_shape = tile;
         d.format_name = nullptr;
       }}};
  expect_each_refused(t, *formats.front(), BP_UNSUPPORTED, changes);
  for (const auto& [what, change] : changes) {
    Description description(*formats.front(), {2, 2 * formats.front()->elements});
    change(description.desc);
    const bp_layout* out = nullptr;
    static_cast<void>(describe(t, description.desc, &out));
    const std::string text = bp_error_text();
    bp_error_clear();
    for (const BlockFormat* format : formats) {
      t.expect(
          text.find(format->name) != std::string::npos,
          what + ": the text names " + std::string(format->name) + ", which there is: " + text);
    }
  }
}

}  // namespace

void add_layout_desc_cases(std::vector<Case>& cases) {
  add_api_cases(cases, "layout",
                {
                    {"equal_descriptions_are_one_layout",
                     {"LAYOUT-7", "LAYOUT-9", "LAYOUT-1"},
                     equal_descriptions_are_one_layout},
                    {"tiles_have_descriptions", {"LAYOUT-7"}, tiles_have_descriptions},
                    {"descriptions_that_contradict_are_refused",
                     {"LAYOUT-8", "ERROR-1", "ERROR-2"},
                     descriptions_that_contradict_are_refused},
                    {"unknown_layouts_are_refused_by_name",
                     {"LAYOUT-8", "ERROR-1"},
                     unknown_layouts_are_refused_by_name},
                });
}

}  // namespace bp::conformance
