// The cells of recurrent sequences, on lines of units: what is left to do in a step when the
// products are made. Buffers of a line have kUnits elements, of which those beyond the last unit
// may be anything.
//
// Sources that foreach_target.h compiles include this header once per Highway target.
#if defined(BACKPLANE_CPU_RECURRENT_CELLS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_RECURRENT_CELLS_INL_HPP
#undef BACKPLANE_CPU_RECURRENT_CELLS_INL_HPP
#else
#define BACKPLANE_CPU_RECURRENT_CELLS_INL_HPP
#endif

#include <cstdint>
#include <type_traits>
#include <utility>

#include "backends/host_kernels/gemm_tile-inl.hpp"
#include "backends/host_kernels/lines-inl.hpp"
#include "backends/host_kernels/math-inl.hpp"
#include "backends/host_kernels/pack-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

// The units of a task, and of a panel of a packed weight.
template <typename Sum>
constexpr int64_t kUnits = kTileCols<Sum>;

// Calls fn(place) for each vector of a line.
template <typename Sum, typename Fn>
HWY_INLINE void for_each_vector(const Fn& fn) {
  for (int64_t i = 0; i < kUnits<Sum>; i += kLanes<Sum>) fn(i);
}

// Returns sigmoid(x). A NaN stays.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V sigmoid(D d, V x) {
  return hn::IfThenElse(hn::Eq(x, x), sigmoid_pair(d, x).of_x, x);
}

// Returns 1 - x^2, the slope of tanh whose value is x.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V slope_of_tanh(D d, V x) {
  const V one = hn::Set(d, hn::TFromD<D>{1});
  return hn::NegMulAdd(x, x, one);
}

// Returns x * (1 - x), the slope of sigmoid whose value is x.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V slope_of_sigmoid(D d, V x) {
  return hn::Mul(x, hn::Sub(hn::Set(d, hn::TFromD<D>{1}), x));
}

// Rounds a line to T, which the state has.
template <typename T, typename Sum>
HWY_INLINE void round_line(Sum* line) {
  if constexpr (!std::is_same_v<T, Sum>) {
    T rounded[kUnits<Sum>];
    store_dense_line(line, kUnits<Sum>, rounded);
    load_dense_line(rounded, kUnits<Sum>, line);
  }
}

// ---- Steps -------------------------------------------------------------------------------------

// `gates` are the lines of the sums of the four gates, which become the gates. `c` becomes the next
// c, and y is written, both before they are rounded.
template <typename Sum>
void lstm_line(Sum* const (&gates)[4], Sum* c, Sum* y) {
  const Tag<Sum> d;
  for_each_vector<Sum>([&](int64_t at) HWY_ATTR {
    const auto in = sigmoid(d, hn::LoadU(d, gates[0] + at));
    const auto out = sigmoid(d, hn::LoadU(d, gates[1] + at));
    const auto forget = sigmoid(d, hn::LoadU(d, gates[2] + at));
    const auto candidate = tanh(d, hn::LoadU(d, gates[3] + at));
    const auto next = hn::MulAdd(forget, hn::LoadU(d, c + at), hn::Mul(in, candidate));
    hn::StoreU(in, d, gates[0] + at);
    hn::StoreU(out, d, gates[1] + at);
    hn::StoreU(forget, d, gates[2] + at);
    hn::StoreU(candidate, d, gates[3] + at);
    hn::StoreU(next, d, c + at);
    hn::StoreU(hn::Mul(out, tanh(d, next)), d, y + at);
  });
}

// Turns the sums of z and r into these gates.
template <typename Sum>
void gru_gates_line(Sum* z, Sum* r) {
  const Tag<Sum> d;
  for_each_vector<Sum>([&](int64_t at) HWY_ATTR {
    hn::StoreU(sigmoid(d, hn::LoadU(d, z + at)), d, z + at);
    hn::StoreU(sigmoid(d, hn::LoadU(d, r + at)), d, r + at);
  });
}

// Writes a * b.
template <typename Sum>
void multiply_line(const Sum* a, const Sum* b, Sum* to) {
  const Tag<Sum> d;
  for_each_vector<Sum>([&](int64_t at) HWY_ATTR {
    hn::StoreU(hn::Mul(hn::LoadU(d, a + at), hn::LoadU(d, b + at)), d, to + at);
  });
}

// Writes the candidate, tanh(from_x + r * from_h). Without r, from_h has all of the sum.
template <typename Sum>
void gru_candidate_line(const Sum* from_x, const Sum* r, const Sum* from_h, Sum* candidate) {
  const Tag<Sum> d;
  for_each_vector<Sum>([&](int64_t at) HWY_ATTR {
    auto sum = hn::LoadU(d, from_h + at);
    if (r != nullptr) sum = hn::MulAdd(hn::LoadU(d, r + at), sum, hn::LoadU(d, from_x + at));
    hn::StoreU(tanh(d, sum), d, candidate + at);
  });
}

// Writes (1 - z) * candidate + z * h.
template <typename Sum>
void gru_mix_line(const Sum* z, const Sum* candidate, const Sum* h, Sum* y) {
  const Tag<Sum> d;
  const auto one = hn::Set(d, Sum{1});
  for_each_vector<Sum>([&](int64_t at) HWY_ATTR {
    const auto share = hn::LoadU(d, z + at);
    const auto rest = hn::Mul(hn::Sub(one, share), hn::LoadU(d, candidate + at));
    hn::StoreU(hn::MulAdd(share, hn::LoadU(d, h + at), rest), d, y + at);
  });
}

template <typename Sum>
void simple_line(bool is_relu, const Sum* sums, Sum* y) {
  const Tag<Sum> d;
  for_each_vector<Sum>([&](int64_t at) HWY_ATTR {
    const auto sum = hn::LoadU(d, sums + at);
    const auto relu = hn::IfThenZeroElse(hn::Lt(sum, hn::Zero(d)), sum);
    hn::StoreU(is_relu ? relu : tanh(d, sum), d, y + at);
  });
}

// ---- Gradients of steps ------------------------------------------------------------------------

// `gates` has the five lines that lstm saves, of which the first four become the gradients of the
// sums. dh is the gradient of y; dc becomes that of the c that the step takes.
template <typename Sum>
void lstm_gradient_line(Sum* const (&gates)[5], const Sum* dh, Sum* dc) {
  const Tag<Sum> d;
  for_each_vector<Sum>([&](int64_t at) HWY_ATTR {
    const auto in = hn::LoadU(d, gates[0] + at), out = hn::LoadU(d, gates[1] + at);
    const auto forget = hn::LoadU(d, gates[2] + at), candidate = hn::LoadU(d, gates[3] + at);
    const auto before = hn::LoadU(d, gates[4] + at), of_y = hn::LoadU(d, dh + at);
    const auto level = tanh(d, hn::MulAdd(forget, before, hn::Mul(in, candidate)));
    const auto of_c =
        hn::MulAdd(hn::Mul(of_y, out), slope_of_tanh(d, level), hn::LoadU(d, dc + at));
    hn::StoreU(hn::Mul(hn::Mul(of_c, candidate), slope_of_sigmoid(d, in)), d, gates[0] + at);
    hn::StoreU(hn::Mul(hn::Mul(of_y, level), slope_of_sigmoid(d, out)), d, gates[1] + at);
    hn::StoreU(hn::Mul(hn::Mul(of_c, before), slope_of_sigmoid(d, forget)), d, gates[2] + at);
    hn::StoreU(hn::Mul(hn::Mul(of_c, in), slope_of_tanh(d, candidate)), d, gates[3] + at);
    hn::StoreU(hn::Mul(of_c, forget), d, dc + at);
  });
}

// Turns z and the candidate into the gradients of their sums, and dh into the part of the gradient
// of h that needs no product, dh * z.
template <typename Sum>
void gru_gradient_line(Sum* z, Sum* candidate, const Sum* h, Sum* dh) {
  const Tag<Sum> d;
  const auto one = hn::Set(d, Sum{1});
  for_each_vector<Sum>([&](int64_t at) HWY_ATTR {
    const auto share = hn::LoadU(d, z + at), of_y = hn::LoadU(d, dh + at);
    const auto value = hn::LoadU(d, candidate + at);
    const auto difference = hn::Sub(hn::LoadU(d, h + at), value);
    hn::StoreU(hn::Mul(hn::Mul(of_y, difference), slope_of_sigmoid(d, share)), d, z + at);
    const auto of_candidate = hn::Mul(of_y, hn::Sub(one, share));
    hn::StoreU(hn::Mul(of_candidate, slope_of_tanh(d, value)), d, candidate + at);
    hn::StoreU(hn::Mul(of_y, share), d, dh + at);
  });
}

// Turns r into the gradient of its sum, if what r is multiplied by is `factor`, and the gradient of
// this product is `of_product`. Adds to `rest`, if it is given, what `factor` gets.
template <typename Sum>
void reset_gradient_line(Sum* r, const Sum* factor, const Sum* of_product, Sum* rest) {
  const Tag<Sum> d;
  for_each_vector<Sum>([&](int64_t at) HWY_ATTR {
    const auto value = hn::LoadU(d, r + at), of = hn::LoadU(d, of_product + at);
    const auto of_value = hn::Mul(of, hn::LoadU(d, factor + at));
    hn::StoreU(hn::Mul(of_value, slope_of_sigmoid(d, value)), d, r + at);
    if (rest == nullptr) return;
    hn::StoreU(hn::MulAdd(of, value, hn::LoadU(d, rest + at)), d, rest + at);
  });
}

// Writes the gradient of the sums of a simple cell whose result is y.
template <typename Sum>
void simple_gradient_line(bool is_relu, const Sum* y, const Sum* dh, Sum* of_sums) {
  const Tag<Sum> d;
  for_each_vector<Sum>([&](int64_t at) HWY_ATTR {
    const auto value = hn::LoadU(d, y + at), of_y = hn::LoadU(d, dh + at);
    const auto of_relu = hn::IfThenZeroElse(hn::Le(value, hn::Zero(d)), of_y);
    hn::StoreU(is_relu ? of_relu : hn::Mul(of_y, slope_of_tanh(d, value)), d, of_sums + at);
  });
}

// Adds a line to another one.
template <typename Sum>
void add_to_line(const Sum* from, Sum* to) {
  const Tag<Sum> d;
  for_each_vector<Sum>([&](int64_t at) HWY_ATTR {
    hn::StoreU(hn::Add(hn::LoadU(d, to + at), hn::LoadU(d, from + at)), d, to + at);
  });
}

// ---- Products of the state ---------------------------------------------------------------------

// Multiplies a panel of at most kTileRows rows by a panel of a weight.
template <typename Sum, size_t kRows = kTileRows>
void multiply_rows(int64_t rows, const Sum* a, const Sum* b, int64_t depth,
                   const TilePlace<Sum>& place) {
  if constexpr (kRows > 1) {
    if (rows < static_cast<int64_t>(kRows)) {
      return multiply_rows<Sum, kRows - 1>(rows, a, b, depth, place);
    }
  }
  multiply_tile(a, b, depth, place, std::make_index_sequence<kRows>());
}

// Packs the columns [first, first + count) of all rows of a matrix into panels of kTileRows rows
// and `depth` columns, where they become the columns from `place` on.
template <typename Sum>
void pack_columns(const Matrix& from, int64_t first, int64_t count, Sum* to, int64_t depth,
                  int64_t place) {
  for (int64_t row = 0; row < from.rows; row += kTileRows) {
    pack_panels<kTileRows>(from.part(row, kTileRows, first, count),
                           to + row * depth + place * kTileRows);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_RECURRENT_CELLS_INL_HPP
