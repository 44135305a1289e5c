// Cases for api/include/backplane/layout.h: the blocks that files hold, decoded and encoded.
#include <bit>
#include <cmath>
#include <cstring>

#include "conformance/cases/engine/op_call.hpp"
#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/layouts/block_fixtures.hpp"
#include "registry/boundary/number_text.hpp"

namespace bp::conformance {
namespace {

using enum Layout;

// ---- Decoding -----------------------------------------------------------------------------------

std::string value_text(float value) {
  return short_text(value, 9) + " (bits " + std::to_string(std::bit_cast<uint32_t>(value)) + ")";
}

// Requires that the elements of `y` are those of the blocks that begin at `bytes`.
void expect_decoded(Context& t, const BlockFormat& format, const uint8_t* bytes,
                    const GuardedTensor& y, int64_t count, const std::string& where,
                    const char* tag) {
  for (int64_t i = 0; i < count; ++i) {
    const uint8_t* const block = bytes + i / format.elements * format.bytes;
    const auto want =
        static_cast<float>(format.element(block, static_cast<int>(i % format.elements)));
    const auto got = std::bit_cast<float>(static_cast<uint32_t>(y.element_word(i)));
    const bool is_same = std::isnan(want)
                             ? std::isnan(got)
                             : std::bit_cast<uint32_t>(want) == std::bit_cast<uint32_t>(got);
    if (is_same) continue;
    t.fail({where + "element " + std::to_string(i) + " is " + value_text(got) + ", not " +
                value_text(want),
            "values", tag});
  }
}

GuardedTensor strided_tensor(Context& t, bp_stream* stream, const Shape& shape, Layout layout) {
  return GuardedTensor(memory_place(t, stream), {BP_F32, shape, place(layout, shape)});
}

// Converts to strides, and requires that nothing beside the elements has changed.
void decode(Context& t, bp_stream* stream, GuardedTensor& y, const bp_tensor* x,
            const std::string& where) {
  y.poison_elements(Poison::kOnes);
  y.upload();
  convert(t, stream, y.view(), x);
  finish(t, stream);
  y.download();
  if (const auto damage = y.damage()) {
    t.fail({where + damage_text("dst by strides", *damage), "canary", "LAYOUT-5"});
  }
}

void blocks_decode_exactly(Context& t) {
  const OwnedStream stream = make_stream(t);
  for (const BlockFormat* format : formats_of(t)) {
    t.progress("decode " + std::string(format->name));
    const int64_t n = format->elements;
    for (const Shape& shape : {Shape{n}, Shape{5, 3 * n}, Shape{2, 3, 2 * n}, Shape{2, 0, n}}) {
      const Description description(*format, shape);
      const OwnedLayout layout = layout_of_desc(t, description.desc);
      LaidTensor x(memory_place(t, stream.get()), *layout, BP_F32, shape);
      const std::vector<uint8_t> bytes = random_blocks(t, *format, shape);
      if (!bytes.empty()) write(t, stream.get(), x.ref(), bytes);
      for (const Layout to : {kDense, kStepped, kReversed}) {
        GuardedTensor y = strided_tensor(t, stream.get(), shape, to);
        const std::string where =
            description.name + " of " + shape_text(shape) + " to " + layout_text(to) + ": ";
        decode(t, stream.get(), y, x.view(), where);
        expect_decoded(t, *format, bytes.data(), y, element_count(shape), where, "LAYOUT-5");
      }
    }
  }
}

// A tensor that begins at the second row of another one, and one at its second block.
void whole_blocks_are_tensors_of_their_own(Context& t) {
  const OwnedStream stream = make_stream(t);
  for (const BlockFormat* format : formats_of(t)) {
    const int64_t n = format->elements;
    const Shape whole{4, 3 * n}, rows{2, 3 * n}, tail{2 * n};
    const Description description(*format, whole);
    const OwnedLayout layout = layout_of_desc(t, description.desc);
    LaidTensor x(memory_place(t, stream.get()), *layout, BP_F32, whole);
    const std::vector<uint8_t> bytes = random_blocks(t, *format, whole);
    write(t, stream.get(), x.ref(), bytes);
    for (const auto& [shape, first_block] : {std::pair(rows, 3), std::pair(tail, 1)}) {
      const Description part(*format, shape);
      const OwnedLayout own = layout_of_desc(t, part.desc);
      const int64_t offset = first_block * format->bytes;
      bp_tensor view = *x.view();
      view.layout = own.get();
      view.shape = shape.data();
      view.ndim = static_cast<uint32_t>(shape.size());
      view.byte_offset += static_cast<uint64_t>(offset);
      GuardedTensor y = strided_tensor(t, stream.get(), shape, kDense);
      const std::string where = part.name + ": " + shape_text(shape) + " behind block " +
                                std::to_string(first_block) + " of " + shape_text(whole) + ": ";
      decode(t, stream.get(), y, &view, where);
      expect_decoded(t, *format, bytes.data() + offset, y, element_count(shape), where, "LAYOUT-9");
    }
  }
}

// ---- Encoding -----------------------------------------------------------------------------------

// Returns values of f32 that are of one sign in some blocks, of one magnitude in others, and 0 in
// the last one.
std::vector<DoubleDouble> values_to_encode(Context& t, int64_t count, int64_t block) {
  const std::vector<uint8_t> bytes = random_bytes(t, static_cast<uint64_t>(4 * count));
  std::vector<DoubleDouble> values;
  for (int64_t i = 0; i < count; ++i) {
    int32_t word;
    std::memcpy(&word, bytes.data() + 4 * i, sizeof(word));
    const int64_t kind = i / block % 4;
    double value = std::ldexp(word, kind == 1 ? -40 : -28);
    if (kind == 2) value = std::fabs(value) + 1;
    if (kind == 3) value = word < 0 ? -1.5 : 1.5;
    values.emplace_back(i >= count - block ? 0.0 : double{static_cast<float>(value)});
  }
  return values;
}

void expect_encoded(Context& t, const BlockFormat& format, const GuardedTensor& x,
                    const GuardedTensor& y, int64_t count) {
  const auto value_of = [](const GuardedTensor& of, int64_t i) {
    return std::bit_cast<float>(static_cast<uint32_t>(of.element_word(i)));
  };
  for (int64_t first = 0; first < count; first += format.elements) {
    std::vector<float> block;
    for (int64_t i = first; i < first + format.elements; ++i) block.push_back(value_of(x, i));
    const double bound = reference::encoding_bound(format, block);
    for (int64_t i = first; i < first + format.elements; ++i) {
      const double error = std::fabs(double{value_of(y, i)} - value_of(x, i));
      if (error <= bound) continue;
      t.fail({std::string(format.name) + ": element " + std::to_string(i) + " was " +
                  value_text(value_of(x, i)) + " and is " + value_text(value_of(y, i)) +
                  " after encoding; the bound is " + short_text(bound, 3),
              "values", "LAYOUT-6"});
    }
  }
}

// Converts there and back. A backend may refuse to encode a format.
void encode(Context& t, bp_stream* stream, const BlockFormat& format, Layout from, size_t& count) {
  const bp_layout_ops& layouts = layout_table(t);
  const Shape shape{4, 3 * format.elements};
  const Description description(format, shape);
  const OwnedLayout layout = layout_of_desc(t, description.desc);
  LaidTensor laid(memory_place(t, stream), *layout, BP_F32, shape);
  GuardedTensor x = strided_tensor(t, stream, shape, from),
                y = strided_tensor(t, stream, shape, kDense);
  x.set_elements(values_to_encode(t, element_count(shape), format.elements));
  x.upload();
  laid.poison(Poison::kOnes);
  const bool has_bound = format.elements == 32;
  const bp_status status = layouts.convert(layouts.self, stream, laid.view(), x.view());
  if (status == BP_UNSUPPORTED || !has_bound) {
    t.expect_refused(status, BP_UNSUPPORTED, "encoding " + description.name);
    t.expect(laid.is_unchanged(), description.name + ": memory after an encoding that was refused");
    return;
  }
  t.require_ok(status, "layout.convert to " + description.name);
  decode(t, stream, y, laid.view(), description.name + ": ");
  x.download();
  const std::string damage = laid.damage("dst in blocks");
  if (!damage.empty()) t.fail({description.name + ": " + damage, "canary", "LAYOUT-6"});
  expect_encoded(t, format, x, y, element_count(shape));
  ++count;
}

void blocks_encode_within_their_bound(Context& t) {
  const OwnedStream stream = make_stream(t);
  size_t count = 0;
  for (const BlockFormat* format : formats_of(t)) {
    t.progress("encode " + std::string(format->name));
    for (const Layout from : {kDense, kTransposed, kReversed}) {
      encode(t, stream.get(), *format, from, count);
    }
  }
  if (count == 0) t.not_supported("the backend encodes no format of blocks");
}

void blocks_of_one_layout_are_copied(Context& t) {
  const OwnedStream stream = make_stream(t);
  for (const BlockFormat* format : formats_of(t)) {
    const Shape shape{3, 2 * format->elements};
    const Description description(*format, shape);
    const OwnedLayout layout = layout_of_desc(t, description.desc);
    const MemoryPlace place_in = memory_place(t, stream.get());
    LaidTensor x(place_in, *layout, BP_F32, shape), y(place_in, *layout, BP_F32, shape);
    const std::vector<uint8_t> bytes = random_blocks(t, *format, shape);
    write(t, stream.get(), x.ref(), bytes);
    y.poison(Poison::kOnes);
    convert(t, stream.get(), y.view(), x.view());
    finish(t, stream.get());
    t.expect(read(t, stream.get(), y.ref()) == bytes,
             description.name + ": a conversion to the same layout copies the bytes");
    t.expect(y.damage("dst").empty(), description.name + ": the bytes beside dst");
  }
}

}  // namespace

void add_layout_block_cases(std::vector<Case>& cases) {
  add_api_cases(
      cases, "layout",
      {
          {"blocks_decode_exactly", {"LAYOUT-5"}, blocks_decode_exactly},
          {"whole_blocks_are_tensors_of_their_own",
           {"LAYOUT-9"},
           whole_blocks_are_tensors_of_their_own},
          {"blocks_encode_within_their_bound", {"LAYOUT-6"}, blocks_encode_within_their_bound},
          {"blocks_of_one_layout_are_copied", {"LAYOUT-6"}, blocks_of_one_layout_are_copied},
      });
}

}  // namespace bp::conformance
