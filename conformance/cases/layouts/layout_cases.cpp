// Cases for api/include/backplane/layout.h: references, conversions, and refused calls.
#include <algorithm>
#include <functional>
#include <map>

#include "backplane/ops.h"
#include "conformance/cases/engine/op_call.hpp"
#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/fixtures/graph_fixtures.hpp"
#include "conformance/cases/layouts/layout_fixtures.hpp"
#include "conformance/required_layouts.hpp"

namespace bp::conformance {
namespace {

using enum Layout;

// ---- Tensors on both sides of a conversion ------------------------------------------------------

// Returns a layout by strides that a tensor of this rank can have.
Layout possible(Layout layout, const Shape& shape) {
  if (shape.empty()) return layout == kOffset ? kOffset : kDense;
  if (shape.size() > 1) return layout;
  return layout == kTransposed || layout == kPermuted || layout == kSliced ? kStepped : layout;
}

// Converts from `from` to the layout and on to `to`, both on one stream.
void there_and_back(Context& t, bp_stream* stream, const LayoutSite& site, Layout from, Layout to) {
  const std::string where =
      site_text(site) + ", from " + layout_text(from) + " to " + layout_text(to) + ": ";
  GuardedTensor src = make_strided(t, stream, site, from), dst = make_strided(t, stream, site, to);
  const MemoryPlace place_in = memory_place(t, stream);
  LaidTensor first(place_in, *site.layout, site.dtype, site.shape),
      second(place_in, *site.layout, site.dtype, site.shape);
  src.set_elements(values_of(t, site.dtype, site.shape));
  src.upload();
  dst.poison_elements(Poison::kOnes);
  dst.upload();
  first.poison(Poison::kNan);
  second.poison(Poison::kOnes);
  convert(t, stream, first.view(), src.view());
  convert(t, stream, second.view(), first.view());
  convert(t, stream, dst.view(), second.view());
  finish(t, stream);
  src.download();
  dst.download();
  for (const std::string& damage : {first.damage("dst in the layout"), second.damage("dst")}) {
    if (!damage.empty()) t.fail({where + damage, "canary", "LAYOUT-4"});
  }
  if (const auto damage = dst.damage()) {
    t.fail({where + damage_text("dst by strides", *damage), "canary", "LAYOUT-4"});
  }
  for (int64_t i = 0; i < element_count(site.shape); ++i) {
    if (src.element_word(i) == dst.element_word(i)) continue;
    t.fail({where + "element " + std::to_string(i) + " has the bits " +
                std::to_string(dst.element_word(i)) + ", and had " +
                std::to_string(src.element_word(i)),
            "values", "LAYOUT-4"});
  }
}

void conversions_keep_every_element(Context& t) {
  constexpr Layout kFrom[] = {kDense,   kTransposed,    kOffset,   kBroadcastFirst,
                              kStepped, kBroadcastLast, kReversed, kPermuted,
                              kSliced,  kBroadcastAll,  kNegative};
  constexpr Layout kTo[] = {kStepped, kDense, kTransposed, kReversed, kOffset, kSliced, kNegative};
  const OwnedStream stream = make_stream(t);
  size_t turn = 0;
  for (const LayoutSite& site : layout_sites(t)) {
    t.progress("convert " + site.where);
    for (int i = 0; i < 3; ++i, ++turn) {
      there_and_back(t, stream.get(), site, possible(kFrom[turn % std::size(kFrom)], site.shape),
                     possible(kTo[turn % std::size(kTo)], site.shape));
    }
  }
}

// ---- References ------------------------------------------------------------------------------ //

void references_are_counted(Context& t) {
  const bp_layout_ops& layouts = layout_table(t);
  const std::vector<uint8_t> blob = blob_of(*layout_sites(t).front().layout);
  const OwnedLayout first = layout_of_blob(t, blob);
  const bp_layout* const layout = first.get();
  for (int i = 0; i < 3; ++i) {
    t.expect_eq(layouts.retain(layouts.self, layout), BP_OK, "retain");
  }
  const OwnedLayout second = layout_of_blob(t, blob);
  for (int i = 0; i < 3; ++i) {
    t.expect_eq(layouts.release(layouts.self, layout), BP_OK, "release");
    t.expect(are_equal(t, layout, second.get()), "the layout after a release of several");
  }
  t.expect_eq(layouts.release(layouts.self, nullptr), BP_OK, "release of NULL");
  t.expect_refused(layouts.retain(layouts.self, nullptr), BP_INVALID_ARGUMENT, "retain of NULL");
  t.expect_refused(layouts.equal(layouts.self, layout, layout, nullptr), BP_INVALID_ARGUMENT,
                   "equal with an out_equal that is NULL");
}

// Both conversions wait behind the gate when the last reference ends.
void work_outlives_its_layout(Context& t) {
  const OwnedStream stream = make_stream(t);
  std::vector<LayoutSite> sites = layout_sites(t);
  const auto largest = std::ranges::max_element(
      sites, {}, [](const LayoutSite& site) { return element_count(site.shape); });
  LayoutSite site = std::move(*largest);
  sites.clear();
  GuardedTensor src = make_strided(t, stream.get(), site, kDense),
                dst = make_strided(t, stream.get(), site, kDense);
  LaidTensor laid(memory_place(t, stream.get()), *site.layout, site.dtype, site.shape);
  src.set_elements(values_of(t, site.dtype, site.shape));
  src.upload();
  dst.poison_elements(Poison::kOnes);
  dst.upload();
  laid.poison(Poison::kNan);
  Gate gate(t);
  gate.hold(stream.get());
  convert(t, stream.get(), laid.view(), src.view());
  convert(t, stream.get(), dst.view(), laid.view());
  site.layout.reset();
  gate.open();
  finish(t, stream.get());
  src.download();
  dst.download();
  for (int64_t i = 0; i < element_count(site.shape); ++i) {
    if (src.element_word(i) == dst.element_word(i)) continue;
    t.fail({"the layout was released before the work ran, and element " + std::to_string(i) +
                " is wrong",
            "values", "LAYOUT-3"});
  }
}

// ---- What is refused ------------------------------------------------------------------------- //

// Returns a site with a tensor of rank 2 or more, so that shapes can change.
const LayoutSite& changeable(Context& t, const std::vector<LayoutSite>& sites) {
  for (const LayoutSite& site : sites) {
    const bool is_matrix = site.shape.size() >= 2 && site.shape[0] > 1;
    if (is_matrix && element_count(site.shape) > 1) return site;
  }
  t.not_supported("no kernel prefers a layout for a matrix");
}

struct Sides {
  bp_tensor dst, src;
};
using Change = std::function<void(Sides&)>;

void expect_each_refused(Context& t, bp_stream* stream, const bp_tensor& laid,
                         const bp_tensor& strided, const std::map<std::string, Change>& changes) {
  const bp_layout_ops& layouts = layout_table(t);
  for (const auto& [what, change] : changes) {
    for (const bool is_back : {false, true}) {
      Sides sides{laid, strided};
      change(sides);
      const bp_tensor *dst = is_back ? &sides.src : &sides.dst,
                      *src = is_back ? &sides.dst : &sides.src;
      t.expect_refused(layouts.convert(layouts.self, stream, dst, src), BP_INVALID_ARGUMENT,
                       what + (is_back ? ", from the layout" : ", to the layout"));
    }
  }
}

void conversions_that_do_not_fit_are_refused(Context& t) {
  const bp_layout_ops& layouts = layout_table(t);
  const OwnedStream stream = make_stream(t);
  const std::vector<LayoutSite> sites = layout_sites(t);
  const LayoutSite& site = changeable(t, sites);
  GuardedTensor strided = make_strided(t, stream.get(), site, kDense);
  LaidTensor laid(memory_place(t, stream.get()), *site.layout, site.dtype, site.shape);
  strided.poison_elements(Poison::kNoise);
  strided.upload();
  laid.poison(Poison::kNan);
  Shape other = site.shape;
  other[0] -= 1;
  const std::vector<int64_t> no_strides(site.shape.size(), 0);
  const bp_dtype other_dtype = site.dtype == BP_F32 ? BP_I32 : BP_F32;
  const uint64_t far = uint64_t{1} << 40;
  expect_each_refused(
      t, stream.get(), *laid.view(), *strided.view(),
      {{"another shape by strides", [&](Sides& s) { s.src.shape = other.data(); }},
       {"another shape in the layout", [&](Sides& s) { s.dst.shape = other.data(); }},
       {"both of a shape that the layout is not for",
        [&](Sides& s) { s.dst.shape = s.src.shape = other.data(); }},
       {"another rank", [](Sides& s) { --s.src.ndim; }},
       {"another dtype", [&](Sides& s) { s.src.dtype = other_dtype; }},
       {"both of a dtype that the layout is not for",
        [&](Sides& s) { s.dst.dtype = s.src.dtype = other_dtype; }},
       {"no buffer by strides", [](Sides& s) { s.src.buffer = nullptr; }},
       {"no buffer in the layout", [](Sides& s) { s.dst.buffer = nullptr; }},
       {"bytes behind the buffer by strides", [&](Sides& s) { s.src.byte_offset += far; }},
       {"bytes behind the buffer in the layout", [&](Sides& s) { s.dst.byte_offset += far; }}});
  bp_tensor one_place = *strided.view();
  one_place.strides = no_strides.data();
  t.expect_refused(layouts.convert(layouts.self, stream.get(), &one_place, laid.view()),
                   BP_INVALID_ARGUMENT, "a dst whose elements share one place");
  if (site.layout->alignment_bytes > 1) {
    bp_tensor askew = *laid.view();
    askew.byte_offset += 1;
    t.expect_refused(layouts.convert(layouts.self, stream.get(), &askew, strided.view()),
                     BP_INVALID_ARGUMENT, "a byte_offset that the layout's alignment forbids");
  }
  t.expect_refused(layouts.convert(layouts.self, stream.get(), nullptr, strided.view()),
                   BP_INVALID_ARGUMENT, "a dst that is NULL");
  t.expect_refused(layouts.convert(layouts.self, stream.get(), laid.view(), nullptr),
                   BP_INVALID_ARGUMENT, "a src that is NULL");
  t.expect_refused(layouts.convert(layouts.self, nullptr, laid.view(), strided.view()),
                   BP_INVALID_ARGUMENT, "a stream that is NULL");
  finish(t, stream.get());
  strided.download();
  bool is_unchanged = !strided.damage();
  for (int64_t i = 0; i < element_count(site.shape); ++i) {
    is_unchanged = is_unchanged && strided.is_unchanged(i);
  }
  t.expect(is_unchanged && laid.is_unchanged(), "memory after conversions that were refused");
}

// A tensor with strides and one with a layout, whose contents differ.
struct Pair {
  Pair(Context& t, bp_stream* stream)
      : sites(layout_sites(t)),
        site(changeable(t, sites)),
        strided(make_strided(t, stream, site, kDense)),
        laid(memory_place(t, stream), *site.layout, site.dtype, site.shape) {
    strided.poison_elements(Poison::kNoise);
    strided.upload();
    laid.poison(Poison::kNan);
    finish(t, stream);
  }
  Pair(const Pair&) = delete;

  bp_status convert(Context& t, bp_stream* stream) {
    const bp_layout_ops& layouts = layout_table(t);
    return layouts.convert(layouts.self, stream, laid.view(), strided.view());
  }

  const std::vector<LayoutSite> sites;
  const LayoutSite& site;
  GuardedTensor strided;
  LaidTensor laid;
};

void conversions_on_a_failed_stream_are_refused(Context& t) {
  layout_table(t);
  const OwnedStream stream = make_stream(t), failed = make_failed_stream(t, BP_ABORTED);
  Pair pair(t, stream.get());
  t.expect_refused(pair.convert(t, failed.get()), BP_STREAM_FAILED,
                   "a conversion on a failed stream");
  t.expect(pair.laid.is_unchanged(), "the memory of the layout");
}

bool has_required_layouts(Context& t) {
  for (uint64_t i = 0; i < bp_target_kernel_count(&t.target()); ++i) {
    if (requires_layouts(*bp_target_kernel(&t.target(), i))) return true;
  }
  return false;
}

// Requires that the memory of the layout has the elements of the strided tensor.
void expect_converted(Context& t, bp_stream* stream, Pair& pair) {
  GuardedTensor back = make_strided(t, stream, pair.site, kDense);
  back.poison_elements(Poison::kNan);
  back.upload();
  convert(t, stream, back.view(), pair.laid.view());
  finish(t, stream);
  back.download();
  pair.strided.download();
  for (int64_t i = 0; i < element_count(pair.site.shape); ++i) {
    if (back.element_word(i) == pair.strided.element_word(i)) continue;
    t.fail({"element " + std::to_string(i) + " after the replay of a conversion is another one",
            "values", "LAYOUT-10"});
  }
}

void conversions_in_a_capture_are_replayed_or_refused(Context& t) {
  graph_table(t);
  layout_table(t);
  const OwnedStream stream = make_stream(t);
  Pair pair(t, stream.get());
  Capturing capturing(t, stream.get());
  const bp_status status = pair.convert(t, stream.get());
  if (status != BP_OK && !has_required_layouts(t)) {
    t.expect_refused(status, BP_INVALID_ARGUMENT, "a conversion on a capturing stream");
    t.expect_eq(capturing.info().node_count, uint64_t{0},
                "the number of nodes after the refused calls");
    capturing.abandon();
    convert(t, stream.get(), pair.laid.view(), pair.strided.view());
    return finish(t, stream.get());
  }
  t.require_ok(status, "a conversion on a capturing stream");
  t.expect_eq(capturing.info().node_count, uint64_t{1}, "the number of nodes");
  const OwnedInstance instance = instantiate(t, capturing.end());
  finish(t, stream.get());
  t.expect(pair.laid.is_unchanged(), "the memory of the layout before a replay");
  replay(t, instance, stream.get());
  expect_converted(t, stream.get(), pair);
}

// A layout was made for one shape, and a call of another shape gets it.
void launches_in_other_layouts_are_refused(Context& t) {
  const std::vector<LayoutSite> sites = layout_sites(t);
  const OwnedStream stream = make_stream(t);
  constexpr int64_t kStride[1] = {1};
  constexpr int64_t kLength[1] = {4};
  const OwnedBuffer buffer = make_buffer(t, 4096);
  const bp_tensor plain{
      .buffer = buffer.get(), .shape = kLength, .strides = kStride, .ndim = 1, .dtype = BP_F32};
  size_t count = 0;
  for (const LayoutSite& site : sites) {
    if (site.shape == Shape{4}) continue;
    bp_tensor laid = plain;
    laid.layout = site.layout.get();
    bp_neg_args args{};
    args.struct_size = sizeof(args);
    args.x = &laid;
    bp_tensor y = plain;
    y.byte_offset = 2048;
    args.y = &y;
    t.expect_refused(bp_op_launch(&t.target(), stream.get(), 0, BP_OP_NEG, &args), BP_UNSUPPORTED,
                     "neg of 4 elements with the layout of " + site_text(site));
    ++count;
  }
  t.require(count != 0, "a layout for another shape");
}

}  // namespace

void add_layout_cases(std::vector<Case>& cases) {
  add_api_cases(
      cases, "layout",
      {
          {"conversions_keep_every_element", {"LAYOUT-4"}, conversions_keep_every_element},
          {"references_are_counted", {"LAYOUT-3"}, references_are_counted},
          {"work_outlives_its_layout", {"LAYOUT-3"}, work_outlives_its_layout},
          {"conversions_that_do_not_fit_are_refused",
           {"LAYOUT-4", "ERROR-1"},
           conversions_that_do_not_fit_are_refused},
          {"conversions_on_a_failed_stream_are_refused",
           {"STREAM-8"},
           conversions_on_a_failed_stream_are_refused},
          {"conversions_in_a_capture_are_replayed_or_refused",
           {"LAYOUT-10", "GRAPH-1"},
           conversions_in_a_capture_are_replayed_or_refused},
          {"launches_in_other_layouts_are_refused",
           {"LAYOUT-2", "KERNEL-13"},
           launches_in_other_layouts_are_refused},
      });
}

}  // namespace bp::conformance
