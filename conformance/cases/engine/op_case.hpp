// One op case as data: the tensors, attributes and oracle of a call, and the definition of a right
// result.
//
// The files op_<family>.cpp make lists of op cases, and op_engine.cpp runs each case.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "conformance/cases/engine/op_frame.hpp"
#include "conformance/memory/layout.hpp"
#include "conformance/numerics/accept.hpp"
#include "conformance/numerics/bounded.hpp"
#include "conformance/numerics/fills.hpp"
#include "conformance/numerics/integer.hpp"
#include "conformance/reference/array.hpp"

namespace bp::conformance {

enum class Role { kInput, kOutput, kInOut };

struct TensorArgument {
  std::string_view name;  // The name of the frame's member; several arguments of one name make a
                          // list.
  Role role = Role::kInput;
  bp_dtype dtype = BP_F32;
  Shape shape;
  Layout layout = Layout::kDense;
  Fill fill;               // The data of an input.
  std::string_view alias;  // The earlier input whose memory it shares; "" if it has its own memory.
};

struct Attribute {
  std::string_view name;
  std::variant<int64_t, double, Shape, bp_scalar> value;
};

bp_scalar float_scalar(double value);
bp_scalar integer_scalar(int64_t value);
bp_scalar unsigned_scalar(uint64_t value);

// The expected value of an output.
struct Expected {
  std::vector<DoubleDouble> value;
  std::vector<double> bound;         // B of each element; empty: all 0.
  std::vector<double> magnitude;     // S of each element, for the bias of sums; empty: all 0.
  bool sign_of_zero = false;         // -0 and 0 are different results.
  bool checks_bias = false;          // Right results err to both sides alike.
  std::vector<bool> free_zero_sign;  // Elements whose sign of zero is open; empty: none.

  // Returns whether `y` is right although it is not `value`, such as any index of equal extremes;
  // NULL: no other answer is right.
  std::function<bool(int64_t element, DoubleDouble y)> also_right;
};

struct HostTensor {
  std::string_view name;
  Role role;
  bp_dtype dtype;
  Shape shape;
  std::vector<DoubleDouble> data;  // The elements of an input as stored: rounded to the dtype.
};

struct OpCase;

// The data of a call on the host, as oracles read them.
class CallData {
 public:
  // `key` is the seed of the case.
  CallData(const OpCase& op_case, uint64_t key);

  bool has(std::string_view name, size_t position = 0) const;
  bool has_attribute(std::string_view name) const;
  HostTensor& tensor(std::string_view name, size_t position = 0);
  const HostTensor& tensor(std::string_view name, size_t position = 0) const;
  size_t list_size(std::string_view name) const;
  std::vector<HostTensor>& tensors() { return tensors_; }
  const std::vector<HostTensor>& tensors() const { return tensors_; }
  uint32_t op() const;

  template <typename N>
  Array<N> array(std::string_view name, size_t position = 0) const {
    const HostTensor& source = tensor(name, position);
    Array<N> result(source.shape);
    for (size_t i = 0; i < source.data.size(); ++i) convert(source.data[i], result.data[i]);
    return result;
  }
  Array<int64_t> indices(std::string_view name) const { return array<int64_t>(name); }

  int64_t integer(std::string_view name) const { return get<int64_t>(name); }
  double number(std::string_view name) const { return get<double>(name); }
  const Shape& list(std::string_view name) const { return get<Shape>(name); }

  // Returns the value of an argument that is an inline scalar or a tensor of one element.
  DoubleDouble value(std::string_view name) const;

  // Returns the value of an inline operand as it acts beside an x of this dtype: in acc(x).
  DoubleDouble operand(std::string_view name, bp_dtype x) const;

 private:
  static void convert(DoubleDouble from, double& to) { to = from.hi; }
  static void convert(DoubleDouble from, DoubleDouble& to) { to = from; }
  static void convert(DoubleDouble from, Integer& to) { to = Integer(to_int64(from)); }
  static void convert(DoubleDouble from, int64_t& to) { to = to_int64(from); }
  template <int kBits>
  static void convert(DoubleDouble from, Bounded<kBits>& to) {
    to = Bounded<kBits>(from.hi);
  }

  template <typename T>
  const T& get(std::string_view name) const {
    return std::get<T>(attribute(name).value);
  }
  const Attribute* find_attribute(std::string_view name) const;
  const Attribute& attribute(std::string_view name) const;

  const OpCase* case_;
  std::vector<HostTensor> tensors_;
};

// Returns one expectation for each output and inout, in the order of the tensors.
using Reference = std::function<std::vector<Expected>(const CallData&, const Numerics&)>;

struct OpCase {
  uint32_t op = 0;
  std::string dtype;  // The dtype for the id and for the selection by dtype.
  std::string fill;
  std::string detail;  // Shape and attributes, for the id.
  std::string layout;
  bool is_smoke = true;
  bool is_exact = false;  // The data need no rounding: bounds are 0 whatever the class is.
  bool varies = true;     // The outputs of a right kernel are neither constant nor mostly zero.
  // What the call gives that kernels may leave to the decomposition of the op; "": nothing.
  std::string optional_part;
  bool fails_on_device = false;  // The data are wrong on purpose: the stream must fail.
  std::vector<TensorArgument> tensors;
  std::vector<Attribute> attributes;
  Reference reference;
  std::function<void(CallData&)> derive;  // Computes inputs that depend on other inputs; NULL:
                                          // there are none.

  std::string id() const;

  // Returns what the outputs must be in a kernel that declares `numerics`.
  std::vector<Expected> expected(const CallData& data, const Numerics& numerics) const;

  // The functions from here are for lists of cases: each adds one argument.
  OpCase& input(std::string_view name, bp_dtype element, Shape shape, Fill data,
                Layout lies = Layout::kDense);
  OpCase& output(std::string_view name, bp_dtype element, Shape shape,
                 Layout lies = Layout::kDense);
  OpCase& inout(std::string_view name, bp_dtype element, Shape shape, Fill data,
                Layout lies = Layout::kDense);
  template <typename T>
  OpCase& set(std::string_view name, T value) {
    attributes.push_back({name, std::move(value)});
    return *this;
  }
};

using OpCases = std::vector<OpCase>;

// Returns a case without arguments.
OpCase make_case(uint32_t op, bp_dtype dtype, std::string fill, std::string detail,
                 std::string layout);

constexpr Fill kRandom{FillKind::kUniform, -1, 1};
constexpr Fill kPositive{FillKind::kUniform, 0.01, 2};
constexpr Fill kExactDense{FillKind::kExactDense, 1, 8};
constexpr Fill kExactNarrow{FillKind::kExactDense, 1, 4};  // The second factor of a product.
constexpr Fill kCoord{FillKind::kCoord, 0, 0};
constexpr Fill kOneHot{FillKind::kOneHot, 0, 0};
constexpr Fill kSpecial{FillKind::kSpecial, 0, 0};
constexpr Fill kSpecialSlow{FillKind::kSpecialSlow, 0, 0};
constexpr Fill kSparse{FillKind::kSparse, -1, 1};
constexpr Fill kExactWide{FillKind::kExactWide, 0, 13};
constexpr Fill kSign{FillKind::kSign, -1, 1};
constexpr Fill kAllBits{FillKind::kAllBits, 0, 0};
constexpr Fill kRepeat{FillKind::kRepeat, 0, 0};
constexpr Fill index_fill(int64_t end) { return {FillKind::kIndex, 0, static_cast<double>(end)}; }

// Returns the value of an inline scalar.
DoubleDouble scalar_value(const bp_scalar& scalar);

// Returns "4x7" for (4, 7), and "scalar" for rank 0.
std::string shape_text(const Shape& shape);

// ---- What oracles are written with ----------------------------------------------------------- //

// Calls `work` with a value of the number type in which ops on `dtype` have their oracle.
template <typename Work>
auto with_number(bp_dtype dtype, Work work) {
  if (dtype == BP_F64) return work(DoubleDouble());
  if (is_float(dtype)) return work(double());
  return work(Integer());
}

// Call `work` with a value of the number type of an oracle for floats. with_bounded() passes the
// number type that carries the bound.
template <typename Work>
auto with_float(bp_dtype dtype, Work work) {
  return dtype == BP_F64 ? work(DoubleDouble()) : work(double());
}
template <typename Work>
auto with_bounded(bp_dtype dtype, Work work) {
  return dtype == BP_F64 ? work(Bounded<53>()) : work(Bounded<24>());
}

inline DoubleDouble exact_of(double x) { return x; }
inline DoubleDouble exact_of(DoubleDouble x) { return x; }
inline DoubleDouble exact_of(Integer x) { return DoubleDouble::from_int64(x.value); }
inline DoubleDouble exact_of(int64_t x) { return DoubleDouble::from_int64(x); }

template <typename N>
Expected exactly(const Array<N>& values) {
  Expected expected;
  for (const N& value : values.data) expected.value.push_back(exact_of(value));
  return expected;
}

}  // namespace bp::conformance
