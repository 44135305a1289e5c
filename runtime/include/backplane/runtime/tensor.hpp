// A Tensor is a shared handle of strided device memory, and views of a tensor share its memory.
//
//   bp::Device device("npu");
//   bp::Tensor a = bp::arange(6, BP_F32, device).reshape({2, 3});
//   bp::Tensor b = a.transpose(0, 1) * 2 + 1;  // Views cost no copy; the device does arithmetic.
//   std::cout << b << "\n" << b.select(0, 1).to_vector<float>()[0];
//
// Rules for everything here, unless it says otherwise:
//   Threads    Several threads may use different handles, also handles of one tensor, as long as
//              no thread writes. Work goes to the calling thread's current stream of the device.
//   Blocking   Only functions that give values to the host wait: to_vector, item, copy_to_host and
//              printing.
//   Errors     Throws bp::Error, which names the call, the argument, what was given and allowed.
//   Ownership  Copies of a Tensor share it. A default Tensor is empty and stands for "not given".
//              Only `if (tensor)`, copying and assignment take an empty tensor; all else throws.
//   Axes       Negative axes count from the end.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "backplane/runtime/device.hpp"
#include "backplane/runtime/error.hpp"

namespace bp {

class Tensor;

namespace detail {
struct TensorImpl;
void retain(TensorImpl* impl) noexcept;
void release(TensorImpl* impl) noexcept;
[[noreturn]] void throw_empty();
}  // namespace detail

// A borrowed list of numbers, for shapes, axes and the like: f({2, 3}), f(vector), f(t.shape()).
class IntList {
 public:
  constexpr IntList() = default;
  constexpr IntList(const int64_t* data, size_t count) : data_(data), count_(count) {}
  constexpr IntList(std::initializer_list<int64_t> list) {  // NOLINT: lists are given in place.
    data_ = list.begin();
    count_ = list.size();
  }
  IntList(const std::vector<int64_t>& list)  // NOLINT: as above.
      : data_(list.data()), count_(list.size()) {}
  IntList(std::span<const int64_t> list)  // NOLINT: as above.
      : data_(list.data()), count_(list.size()) {}
  template <size_t N>
  IntList(const std::array<int64_t, N>& list)  // NOLINT: as above.
      : data_(list.data()), count_(N) {}

  const int64_t* data() const { return data_; }
  size_t size() const { return count_; }
  bool empty() const { return count_ == 0; }
  const int64_t* begin() const { return data_; }
  const int64_t* end() const { return data_ + count_; }
  int64_t operator[](size_t i) const { return data_[i]; }
  std::vector<int64_t> to_vector() const { return {begin(), end()}; }
  friend bool operator==(const IntList& a, const IntList& b) {
    if (a.count_ != b.count_) return false;
    for (size_t i = 0; i < a.count_; ++i) {
      if (a.data_[i] != b.data_[i]) return false;
    }
    return true;
  }

 private:
  const int64_t* data_ = nullptr;
  size_t count_ = 0;
};

// The default of arguments that take axes. It stands for all axes.
inline constexpr int64_t kAllAxesMark = INT64_MIN;
inline constexpr IntList kAllAxes(&kAllAxesMark, 1);

// One number on the host.
class Scalar {
 public:
  template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>
  Scalar(T value) {  // NOLINT: numbers are given in place.
    if constexpr (std::is_same_v<T, bool>) {
      set(BP_BOOL, uint64_t{value});
    } else if constexpr (std::is_floating_point_v<T>) {
      const auto wide = static_cast<double>(value);
      uint64_t bits;
      __builtin_memcpy(&bits, &wide, sizeof(bits));
      set(BP_F64, bits);
    } else if constexpr (std::is_signed_v<T>) {
      set(BP_I64, static_cast<uint64_t>(static_cast<int64_t>(value)));
    } else {
      set(BP_U64, static_cast<uint64_t>(value));
    }
  }
  explicit Scalar(const bp_scalar& value) : value_(value) {}

  const bp_scalar& get() const { return value_; }

 private:
  void set(bp_dtype dtype, uint64_t bits) { value_ = {dtype, 0, bits}; }
  bp_scalar value_;
};

// An argument that is a tensor or a number. A number, as in `add(x, 1)`, moves nothing to the
// device. An Operand borrows the tensor, so only parameters of functions have this type.
class Operand {
 public:
  Operand(const Tensor& tensor) : tensor_(&tensor), scalar_(0) {}  // NOLINT: see above.
  Operand(Scalar scalar) : scalar_(scalar) {}                      // NOLINT: see above.
  template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>
  Operand(T value) : scalar_(value) {}  // NOLINT: see above.

  const Tensor* tensor() const { return tensor_; }  // NULL if the operand is a number.
  const bp_scalar& scalar() const { return scalar_.get(); }

 private:
  const Tensor* tensor_ = nullptr;
  Scalar scalar_;
};

class Tensor {
 public:
  Tensor() = default;
  Tensor(const Tensor& other) noexcept : impl_(other.impl_) {
    if (impl_ != nullptr) detail::retain(impl_);
  }
  Tensor(Tensor&& other) noexcept : impl_(std::exchange(other.impl_, nullptr)) {}
  Tensor& operator=(Tensor other) noexcept {
    std::swap(impl_, other.impl_);
    return *this;
  }
  ~Tensor() {
    if (impl_ != nullptr) detail::release(impl_);
  }

  explicit operator bool() const { return impl_ != nullptr; }

  // ---- What it is -----------------------------------------------------------------------------

  int64_t ndim() const { return static_cast<int64_t>(get()->ndim); }
  IntList shape() const { return {get()->shape, get()->ndim}; }
  IntList strides() const { return {get()->strides, get()->ndim}; }  // Counted in elements.
  int64_t shape(int64_t axis) const;
  int64_t numel() const;
  bp_dtype dtype() const { return get()->dtype; }
  uint64_t element_bits() const { return bp_dtype_bits(dtype()); }
  // Returns the bytes of all elements without gaps, as copy_to_host() gives them. Elements of fewer
  // than 8 bits are packed from the low bits of a byte up, and the last byte may not be full.
  uint64_t size_bytes() const;
  Device device() const;
  bool is_contiguous() const;  // Whether the elements are row-major without gaps.

  // Returns the tensor as kernels see it. The pointer is valid until this handle is destroyed or
  // assigned to.
  const bp_tensor* get() const {
    if (impl_ == nullptr) [[unlikely]]
      detail::throw_empty();
    return reinterpret_cast<const bp_tensor*>(impl_);  // `view` is the first member.
  }
  detail::TensorImpl* impl() const { return impl_; }

  // Returns how often the memory was written in place, through any view. Wrappers and copies count.
  uint32_t version() const;

  // Counts a write in place that the caller makes through backplane/host.h, as wrappers count
  // theirs: a gradient that saved the old elements is refused from then on.
  void mark_written() const;

  // Keeps the memory from being reused too early: when the last handle goes, the memory stays in
  // use until `stream` has ended all work submitted to it by then. Call it for a tensor that is
  // used on another stream than the one on which it was made.
  void record_stream(const Stream& stream) const;

  // ---- Views: no copies -----------------------------------------------------------------------

  // One extent of `shape` may be -1 and then follows from the others. If no strides express the
  // shape, view() throws and reshape() copies.
  Tensor view(IntList shape) const;
  Tensor reshape(IntList shape) const;
  Tensor flatten(int64_t first = 0, int64_t last = -1) const;
  Tensor permute(IntList axes) const;
  Tensor transpose(int64_t axis_a, int64_t axis_b) const;
  Tensor transpose() const;  // Swaps the last two axes.
  Tensor expand(IntList shape) const;
  Tensor slice(int64_t axis, int64_t start, int64_t stop,
               int64_t step = 1) const;  // As in a slice of Python.
  Tensor narrow(int64_t axis, int64_t start, int64_t length) const;
  Tensor select(int64_t axis, int64_t index) const;
  Tensor squeeze() const;  // Removes all axes of extent 1.
  Tensor squeeze(int64_t axis) const;
  Tensor unsqueeze(int64_t axis) const;
  // as_strided() is not differentiable. `offset` counts elements from the beginning of this tensor.
  Tensor as_strided(IntList shape, IntList strides, int64_t offset = 0) const;

  // ---- Copies ---------------------------------------------------------------------------------

  // contiguous() and to() return this tensor itself if it already is what they are asked for. A
  // gradient of the result of to(device) moves back to the device of this tensor.

  Tensor contiguous() const;
  Tensor clone() const;  // Returns a contiguous copy.
  Tensor to(bp_dtype dtype) const;
  Tensor to(Device device) const;

  // Writes `source`, broadcast to this shape and cast to this dtype, in place. The write is not
  // recorded.
  void copy_from(const Tensor& source) const;
  void fill(Scalar value) const;

  // Copies row-major elements. `size_bytes` must be the size of this tensor.
  void copy_from_host(const void* source, uint64_t size_bytes) const;
  void copy_to_host(void* target, uint64_t size_bytes) const;

  // Returns the elements on the host, row-major. T must match the dtype: uint8_t or bool for bool,
  // uint16_t for f16 and bf16.
  template <typename T>
  std::vector<T> to_vector() const;
  // Returns the one element of this tensor, converted to T. Error if a float does not fit in 64
  // bits.
  template <typename T>
  T item() const;

  // ---- Gradients: see autograd.hpp ------------------------------------------------------------

  bool requires_grad() const;
  bool is_leaf() const;  // True unless a recorded op made the tensor.
  const Tensor& set_requires_grad(bool required = true) const;  // For a leaf of a float dtype.
  Tensor grad() const;                      // Empty until backward() has reached this leaf.
  void set_grad(const Tensor& grad) const;  // Empty: removes it.
  Tensor detach() const;                    // Shares the memory outside the graph.

  // Adds the gradient of this tensor to grad() of each leaf that it depends on. `gradient` is the
  // gradient of this tensor itself. If `gradient` is empty or not given, it is 1, and the tensor
  // must have one element.
  void backward() const;
  void backward(const Tensor& gradient, bool retain_graph = false, bool create_graph = false) const;

  // Makes a Tensor that takes over one reference of `impl`.
  static Tensor adopt(detail::TensorImpl* impl) {
    Tensor tensor;
    tensor.impl_ = impl;
    return tensor;
  }

 private:
  void check_host_type(bp_dtype wanted, uint64_t size_bytes) const;
  double item_f64() const;
  int64_t item_i64() const;

  detail::TensorImpl* impl_ = nullptr;
};

// ---- Making tensors ---------------------------------------------------------------------------

Tensor empty(IntList shape, bp_dtype dtype,
             Device device = current_device());  // The elements are undefined.
Tensor full(IntList shape, Scalar value, bp_dtype dtype, Device device = current_device());
Tensor zeros(IntList shape, bp_dtype dtype, Device device = current_device());
Tensor ones(IntList shape, bp_dtype dtype, Device device = current_device());
Tensor zeros_like(const Tensor& other);
Tensor ones_like(const Tensor& other);
Tensor arange(int64_t count, bp_dtype dtype, Device device = current_device());  // 0, 1, ...
Tensor scalar(Scalar value, bp_dtype dtype, Device device = current_device());   // No axes.

// Copies row-major host memory of the shape's size to a new tensor.
Tensor from_host(const void* data, IntList shape, bp_dtype dtype, Device device = current_device());

// Makes a tensor of `block`, such as one of foreign memory (backplane/blocks.h), without a copy,
// and takes the block over: it is freed when the last tensor of its memory goes. `view` says where
// the elements lie in the buffer of the block, and how; it is copied. Error unless it begins inside
// the block, and for a layout, flags and links. After an Error the block stays the caller's.
Tensor from_block(bp_block* block, const bp_tensor& view, Device device);

namespace detail {
// Throws Error unless `shape` has `count` elements.
void check_element_count(uint64_t count, IntList shape);
}  // namespace detail

// Returns the dtype of a host type.
template <typename T>
constexpr bp_dtype dtype_of() {
  if constexpr (std::is_same_v<T, bool>) return BP_BOOL;
  if constexpr (std::is_same_v<T, int8_t>) return BP_I8;
  if constexpr (std::is_same_v<T, int16_t>) return BP_I16;
  if constexpr (std::is_same_v<T, int32_t>) return BP_I32;
  if constexpr (std::is_same_v<T, int64_t>) return BP_I64;
  if constexpr (std::is_same_v<T, uint8_t>) return BP_U8;
  if constexpr (std::is_same_v<T, uint16_t>) return BP_U16;
  if constexpr (std::is_same_v<T, uint32_t>) return BP_U32;
  if constexpr (std::is_same_v<T, uint64_t>) return BP_U64;
  if constexpr (std::is_same_v<T, float>) return BP_F32;
  if constexpr (std::is_same_v<T, double>) return BP_F64;
  return 0;
}

template <typename T>
Tensor from_host(const std::vector<T>& data, IntList shape, Device device = current_device()) {
  static_assert(dtype_of<T>() != 0 && !std::is_same_v<T, bool>, "use uint8_t and to(BP_BOOL)");
  detail::check_element_count(data.size(), shape);
  return from_host(data.data(), shape, dtype_of<T>(), device);
}

// ---- Printing ---------------------------------------------------------------------------------

struct PrintOptions {
  int precision = 4;  // Digits after the point.
  // A tensor of more elements than `threshold` shows only `edge_items` at each end of an axis.
  int64_t threshold = 1000;
  int64_t edge_items = 3;
  int line_width = 80;
};
std::string to_string(const Tensor& tensor, const PrintOptions& options = {});
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

// to_string() returns text like "(2, 3)", and dtype_text() text like "f32".
std::string to_string(IntList list);
std::string dtype_text(bp_dtype dtype);

// ---- Operators: each calls the op of its name, see ops.hpp -------------------------------------

Tensor operator+(const Tensor& a, const Operand& b);
Tensor operator-(const Tensor& a, const Operand& b);
Tensor operator*(const Tensor& a, const Operand& b);
Tensor operator/(const Tensor& a, const Operand& b);
Tensor operator==(const Tensor& a, const Tensor& b);  // Element by element.
Tensor operator==(const Tensor& a, const Operand& b);
Tensor operator-(const Tensor& x);
Tensor operator+(Scalar a, const Tensor& b);
Tensor operator-(Scalar a, const Tensor& b);
Tensor operator*(Scalar a, const Tensor& b);
Tensor operator/(Scalar a, const Tensor& b);

// ---- Bodies of templates ----------------------------------------------------------------------

template <typename T>
std::vector<T> Tensor::to_vector() const {
  static_assert(dtype_of<T>() != 0 && !std::is_same_v<T, bool>, "use uint8_t for bool");
  check_host_type(dtype_of<T>(), sizeof(T));
  std::vector<T> result(static_cast<size_t>(numel()));
  copy_to_host(result.data(), result.size() * sizeof(T));
  return result;
}

template <typename T>
T Tensor::item() const {
  static_assert(std::is_arithmetic_v<T>);
  if constexpr (std::is_same_v<T, bool>) return item_f64() != 0;
  if constexpr (std::is_floating_point_v<T>) return static_cast<T>(item_f64());
  return static_cast<T>(item_i64());
}

}  // namespace bp
