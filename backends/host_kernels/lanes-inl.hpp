// Loads and stores vectors of elements of any dtype.
//
//   memory      tag d            conversion on load   on store
//   float       float            none                 none
//   Float16     float            exact                nearest even; a NaN stays one
//   BFloat16    float            exact                nearest even; a NaN stays one
//   double      double           none                 none
//   an integer  the same         none                 none
//
// Sources that foreach_target.h compiles include this header once per Highway target. Every target
// gives the same bits.
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

// The tag of the full vectors in which elements of T are computed.
template <typename T>
using ComputeTag = hn::ScalableTag<Compute<T>>;

// Is 1 if the target converts f16 by instructions, which round to nearest even and keep subnormals.
// On other targets Highway flushes subnormals, so the elements are converted one by one.
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

// Rounds each lane to a bfloat16, which is the upper half of the result. It adds just under half a
// unit of the last kept bit, and the rest of the half if the kept part is odd.
template <class D>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> round_to_upper_half(D d, hn::Vec<D> v) {
  static_cast<void>(d);
  const hn::RebindToUnsigned<D> bits_d;
  const auto bits = hn::BitCast(bits_d, v);
  const auto is_odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(bits_d, 1));
  const auto rounded = hn::Add(hn::Add(bits, hn::Set(bits_d, 0x7fff)), is_odd);
  const auto quiet = hn::Or(bits, hn::Set(bits_d, 0x400000));
  return hn::IfThenElse(hn::RebindMask(bits_d, hn::IsNaN(v)), quiet, rounded);
}

template <class D>
HWY_INLINE void store_lanes(hn::Vec<D> v, D d, BFloat16* to) {
  const hn::RebindToSigned<D> signed_d;
  const hn::Rebind<uint16_t, D> narrow_d;
  const auto upper = hn::ShiftRight<16>(round_to_upper_half(d, v));
  hn::StoreU(hn::DemoteTo(narrow_d, hn::BitCast(signed_d, upper)), narrow_d,
             reinterpret_cast<uint16_t*>(to));
}

// Stores the lanes of `lower` and behind them those of `upper`. d is the tag of full vectors. For
// bfloat16 this takes fewer instructions than two stores.
template <class D, typename T>
HWY_INLINE void store_two(hn::Vec<D> lower, hn::Vec<D> upper, D d, T* to) {
  store_lanes(lower, d, to);
  store_lanes(upper, d, to + hn::Lanes(d));
}

#if HWY_TARGET != HWY_SCALAR
template <class D>
HWY_INLINE void store_two(hn::Vec<D> lower, hn::Vec<D> upper, D d, BFloat16* to) {
  const hn::Repartition<uint16_t, D> halves_d;
  const auto first = hn::BitCast(halves_d, round_to_upper_half(d, lower));
  const auto second = hn::BitCast(halves_d, round_to_upper_half(d, upper));
  hn::StoreU(hn::ConcatOdd(halves_d, second, first), halves_d, reinterpret_cast<uint16_t*>(to));
}
#endif

// Loads the first `count` lanes, which are fewer than all lanes, and sets the others to 0. It reads
// no other element.
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

// The map that a reduction applies to elements before it combines them; this one returns the
// element. at(i) returns the map for the columns from i on, since each column may have its own.
struct Itself {
  Itself at(int64_t) const { return {}; }
  template <class D, class V>
  HWY_INLINE V operator()(D, V v) const {
    return v;
  }
};

// Applies the map to one value.
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
