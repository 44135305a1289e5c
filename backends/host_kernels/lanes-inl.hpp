// Vectors of elements in memory: what kernels load and store, whatever the dtype of a tensor.
//
//   memory      tag d            conversion on load   on store
//   float       float            none                 none
//   Float16     float            exact                nearest even; a NaN stays one
//   BFloat16    float            exact                nearest even; a NaN stays one
//   double      double           none                 none
//   an integer  the same         none                 none
//
// Included once per Highway target, by sources that foreach_target.h compiles. Every target gives
// the same bits.
#if defined(BACKPLANE_CPU_LANES_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef BACKPLANE_CPU_LANES_INL_HPP
#undef BACKPLANE_CPU_LANES_INL_HPP
#else
#define BACKPLANE_CPU_LANES_INL_HPP
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "backplane/shell/narrow.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The tag of full vectors that elements of T are computed in.
template <typename T>
using ComputeTag = hn::ScalableTag<Compute<T>>;

// Whether the target converts f16 by instructions, which round as we must and keep subnormals.
// Elsewhere Highway flushes subnormals, so that we convert one by one.
#if (HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL) && \
    !defined(HWY_DISABLE_F16C)
constexpr bool kHasFloat16 = true;
#else
constexpr bool kHasFloat16 = false;
#endif

template <class D, typename T>
HWY_INLINE hn::Vec<D> load_lanes(D d, const T* from) {
  static_assert(sizeof(T) == sizeof(hn::TFromD<D>), "elements of T are computed in Compute<T>");
  return hn::LoadU(d, from);
}

template <class D>
HWY_INLINE hn::Vec<D> load_lanes(D d, const Float16* from) {
  if constexpr (kHasFloat16) {
    const hn::Rebind<hwy::float16_t, D> narrow_d;
    return hn::PromoteTo(d, hn::LoadU(narrow_d, reinterpret_cast<const hwy::float16_t*>(from)));
  } else {
    HWY_ALIGN float lanes[hn::MaxLanes(D())];
    for (size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = from[i].to_f32();
    return hn::Load(d, lanes);
  }
}

template <class D>
HWY_INLINE hn::Vec<D> load_lanes(D d, const BFloat16* from) {
  const hn::RebindToUnsigned<D> bits_d;
  const hn::Rebind<uint16_t, D> narrow_d;
  const auto bits = hn::LoadU(narrow_d, reinterpret_cast<const uint16_t*>(from));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(bits_d, bits)));
}

template <class D, typename T>
HWY_INLINE void store_lanes(hn::Vec<D> v, D d, T* to) {
  static_assert(sizeof(T) == sizeof(hn::TFromD<D>), "elements of T are computed in Compute<T>");
  hn::StoreU(v, d, to);
}

template <class D>
HWY_INLINE void store_lanes(hn::Vec<D> v, D d, Float16* to) {
  if constexpr (kHasFloat16) {
    const hn::Rebind<hwy::float16_t, D> narrow_d;
    hn::StoreU(hn::DemoteTo(narrow_d, v), narrow_d, reinterpret_cast<hwy::float16_t*>(to));
  } else {
    HWY_ALIGN float lanes[hn::MaxLanes(D())];
    hn::Store(v, d, lanes);
    for (size_t i = 0; i < hn::Lanes(d); ++i) to[i] = Float16::from_f32(lanes[i]);
  }
}

// Adds just under half of what is dropped, and the rest of that half if the kept part is odd.
template <class D>
HWY_INLINE void store_lanes(hn::Vec<D> v, D, BFloat16* to) {
  const hn::RebindToUnsigned<D> bits_d;
  const hn::RebindToSigned<D> signed_d;
  const hn::Rebind<uint16_t, D> narrow_d;
  const auto bits = hn::BitCast(bits_d, v);
  const auto is_odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(bits_d, 1));
  const auto rounded = hn::Add(hn::Add(bits, hn::Set(bits_d, 0x7fff)), is_odd);
  const auto quiet = hn::Or(bits, hn::Set(bits_d, 0x400000));
  const auto is_nan = hn::RebindMask(bits_d, hn::IsNaN(v));
  const auto upper = hn::ShiftRight<16>(hn::IfThenElse(is_nan, quiet, rounded));
  hn::StoreU(hn::DemoteTo(narrow_d, hn::BitCast(signed_d, upper)), narrow_d,
             reinterpret_cast<uint16_t*>(to));
}

// The first `count` lanes, fewer than all of them; the others are 0. No other element is touched.
template <class D, typename T>
HWY_INLINE hn::Vec<D> load_lanes_n(D d, const T* from, size_t count) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  if constexpr (sizeof(T) >= 4) return hn::MaskedLoad(hn::FirstN(d, count), d, from);
#endif
  HWY_ALIGN T lanes[hn::MaxLanes(D())] = {};
  for (size_t i = 0; i < count; ++i) lanes[i] = from[i];
  return load_lanes(d, lanes);
}

template <class D, typename T>
HWY_INLINE void store_lanes_n(hn::Vec<D> v, D d, T* to, size_t count) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  if constexpr (sizeof(T) >= 4) return hn::BlendedStore(v, hn::FirstN(d, count), d, to);
#endif
  HWY_ALIGN T lanes[hn::MaxLanes(D())];
  store_lanes(v, d, lanes);
  for (size_t i = 0; i < count; ++i) to[i] = lanes[i];
}

// What a loop that reduces does to elements before it combines them: nothing. Another such map
// computes something; at(i) is the map of the columns from i on, where each has its own.
struct Itself {
  Itself at(int64_t) const { return {}; }
  template <class D, class V>
  HWY_INLINE V operator()(D, V v) const {
    return v;
  }
};

// The map of one value.
template <class Map, typename C>
HWY_INLINE C map_one(const Map& map, C x) {
  if constexpr (std::is_same_v<Map, Itself>) {
    return x;
  } else {
    const hn::CappedTag<C, 1> d;
    return hn::GetLane(map(d, hn::Set(d, x)));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#endif  // BACKPLANE_CPU_LANES_INL_HPP
