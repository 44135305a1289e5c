// Turns the exact sums of oneDNN into results: it takes off what the zero points add to them, and
// multiplies them by the scales.
#include <algorithm>
#include <numeric>

#include "kernel_env.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/scaled_finish.cpp"
// clang-format off: this header compiles the file once for each target, and comes first.
#include <hwy/foreach_target.h>
// clang-format on
#include <hwy/highway.h>

#include "backends/host_kernels/lines-inl.hpp"
#include "backends/host_kernels/scaled_codes-inl.hpp"
#include "backends/host_kernels/scaled_work.hpp"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels::HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_SCALAR

void finish(const ScaledProduct&, const int32_t*, const ColumnNumbers&, int) {
  throw StatusError(BP_INTERNAL, "matmul_scaled: no vectors, and supports() has said so");
}

#else

// Returns the sum of a row of b of i8.
int32_t sum_of_column(const ScaledProduct& p, int64_t col) {
  const auto* const codes = reinterpret_cast<const uint8_t*>(p.b) + col * p.b_row_bytes;
  const auto vector_bytes = static_cast<int64_t>(hn::Lanes(Bytes()));
  const hn::Repartition<uint64_t, Bytes> d;
  auto sums = hn::Zero(d);
  int64_t k = 0, sum = 0;
  for (; k + vector_bytes <= p.depth; k += vector_bytes) {
    const auto without_sign = hn::Xor(hn::LoadU(Bytes(), codes + k), hn::Set(Bytes(), 0x80));
    sums = hn::Add(sums, hn::SumsOf8(without_sign));
  }
  sum = static_cast<int64_t>(hn::GetLane(hn::SumOfLanes(d, sums))) - 128 * k;
  for (; k < p.depth; ++k) sum += static_cast<int8_t>(codes[k]);
  return static_cast<int32_t>(sum);
}

// Reads the scales and zero points of the columns, and the sums of b less its zero points if a has
// zero points.
void read_columns(const ScaledProduct& p, const ColumnNumbers& to, int thread_count) {
  constexpr int64_t kGrainElements = 1 << 16;
  const CodeValues scale_values(p.b_scale.dtype), zero_values(p.b_dtype);
  const int64_t grain = to.sums == nullptr ? p.cols : ceil_div(kGrainElements, p.depth);
  parallel_for(thread_count, p.cols, grain, [&](int64_t begin, int64_t end) {
    for (int64_t col = begin; col < end; ++col) {
      const int64_t index[] = {col, 0};
      to.scales[col] = p.b_scale.at(p.b_scale.offset_of(index), scale_values);
      int32_t zero = 0;
      if (p.has_zero) {
        zero = static_cast<int32_t>(p.b_zero.at(p.b_zero.offset_of(index), zero_values));
        to.zeros[col] = zero;
      }
      if (to.sums != nullptr) {
        to.sums[col] = sum_of_column(p, col) - zero * static_cast<int32_t>(p.depth);
      }
    }
  });
}

int32_t sum_of_row(const ScaledProduct& p, int64_t offset) {
  if (p.a_dtype == BP_U8) {
    const auto* const a = reinterpret_cast<const uint8_t*>(p.a.address) + offset;
    return std::accumulate(a, a + p.depth, 0);
  }
  const auto* const a = reinterpret_cast<const int8_t*>(p.a.address) + offset;
  return std::accumulate(a, a + p.depth, 0);
}

// The numbers of the codes of scales and of zero points of a.
struct ValuesOfA {
  CodeValues scales, zeros;
};

// Computes a row of y from its sums. Steps may wrap around, but the sum of the products of
// differences is an i32.
void finish_row(const ScaledProduct& p, int64_t row, const int32_t* sums,
                const ColumnNumbers& columns, const ValuesOfA& values) {
  constexpr int64_t kPart = 256;
  int64_t index[BP_MAX_RANK] = {};
  const int64_t a_offset = row_offset(p.a, row, index);
  const int64_t scale_offset = p.a_scale.offset_of(index);
  const auto row_scale = hn::Set(Floats(), p.a_scale.at(scale_offset, values.scales));
  const auto total = hn::Set(Sums(), p.has_zero ? sum_of_row(p, a_offset) : 0);
  auto zero_of_a = hn::Zero(Sums());
  if (columns.sums != nullptr) {
    const float zero = p.a_zero.at(p.a_zero.offset_of(index), values.zeros);
    zero_of_a = hn::Set(Sums(), static_cast<int32_t>(zero));
  }
  const int64_t stride = p.y.strides[p.y.ndim - 1], y_offset = row_offset(p.y, row, index);
  HWY_ALIGN float line[kPart];
  for (int64_t col = 0; col < p.cols; col += kPart) {
    const int64_t count = std::min(kPart, p.cols - col);
    HWY_ALIGN int32_t last[kPart];
    const int32_t* from = sums + col;
    if (count < kPart) from = std::copy_n(from, count, last) - count;
    for (int64_t i = 0; i < count; i += lane_count()) {
      auto sum = hn::LoadU(Sums(), from + i);
      if (p.has_zero) {
        sum = hn::Sub(sum, hn::Mul(hn::LoadU(Sums(), columns.zeros + col + i), total));
      }
      if (columns.sums != nullptr) {
        sum = hn::Sub(sum, hn::Mul(hn::LoadU(Sums(), columns.sums + col + i), zero_of_a));
      }
      const auto scaled =
          hn::Mul(hn::ConvertTo(Floats(), sum), hn::LoadU(Floats(), columns.scales + col + i));
      hn::Store(hn::Mul(scaled, row_scale), Floats(), line + i);
    }
    with_element_of<float>(p.y_dtype, [&]<typename T>(T) {
      store_line(line, count, reinterpret_cast<T*>(p.y.address) + y_offset + col * stride, stride);
    });
  }
}

void finish(const ScaledProduct& p, const int32_t* sums, const ColumnNumbers& columns,
            int thread_count) {
  constexpr int64_t kGrainElements = 32768;
  read_columns(p, columns, thread_count);
  const ValuesOfA values{CodeValues(p.a_scale.dtype), CodeValues(p.a_dtype)};
  parallel_for(thread_count, p.rows, ceil_div(kGrainElements, p.cols),
               [&](int64_t begin, int64_t end) {
                 for (int64_t row = begin; row < end; ++row) {
                   finish_row(p, row, sums + row * p.cols, columns, values);
                 }
               });
}

#endif

}  // namespace
}  // namespace bp::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(finish);

}  // namespace

uint64_t scaled_columns_size_bytes(const ScaledProduct& p) {
  return 3 * sizeof(float) * static_cast<uint64_t>(round_up(p.cols, kMostLanes));
}

void finish_scaled_sums(const ScaledProduct& p, const int32_t* sums, std::byte* columns,
                        int thread_count) {
  const int64_t stride = round_up(p.cols, kMostLanes);
  ColumnNumbers numbers{reinterpret_cast<float*>(columns)};
  numbers.zeros = reinterpret_cast<int32_t*>(numbers.scales + stride);
  if (p.a_zero.view.address != nullptr) numbers.sums = numbers.zeros + stride;
  HWY_DYNAMIC_DISPATCH(finish)(p, sums, numbers, thread_count);
}

}  // namespace bp::kernels
#endif
