// Parses the rules of a described op: dtypes, shapes, ranks, bounds and defaults.
#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "backplane/host.h"
#include "registry/calls/dtypes.hpp"
#include "registry/calls/op_draft.hpp"
#include "registry/calls/op_rows.hpp"

namespace bp::core {
namespace {

class RuleReader {
 public:
  explicit RuleReader(OpDraft& draft) : draft_(draft) {}

  void read() {
    for (const bp_op_argument& argument : made_.described) {
      rule_arguments_.push_back({.name = argument.name,
                                 .kind = argument.kind,
                                 .offset = argument.offset_bytes,
                                 .values = {argument.value_names, argument.value_count},
                                 .first_value = argument.first_value});
    }
    for (uint32_t i = 0; i < made_.described.size(); ++i) read_rules(i);
    order_dtypes();
  }

 private:
  uint32_t tensor_named(const bp_op_argument& a, std::string_view name) const {
    for (uint32_t i = 0; i < made_.described.size(); ++i) {
      const bp_op_argument& other = made_.described[i];
      if (other.name == name && is_tensor_kind(other.kind)) return i;
    }
    draft_.reject(a, "'" + std::string(name) + "' is no tensor of this op");
  }

  bp_dtype dtype_named(const bp_op_argument& a, std::string_view name) const {
    const bp_dtype dtype = bp_dtype_from_name(std::string(name).c_str());
    if (dtype == 0) draft_.reject(a, "there is no dtype '" + std::string(name) + "'");
    return dtype;
  }

  // Reads "like(x)", "acc(x)" or "sum(x)"; nothing if `text` is none of them.
  std::optional<std::pair<DtypeRule, uint32_t>> other_rule(const bp_op_argument& a,
                                                           std::string_view text) const {
    constexpr std::pair<std::string_view, DtypeRule> kRules[] = {
        {"like(", DtypeRule::like}, {"acc(", DtypeRule::accumulator}, {"sum(", DtypeRule::sum}};
    for (const auto& [begin, rule] : kRules) {
      if (!text.starts_with(begin) || !text.ends_with(")")) continue;
      text.remove_prefix(begin.size());
      text.remove_suffix(1);
      return std::pair{rule, tensor_named(a, text)};
    }
    return std::nullopt;
  }

  // Returns the dtypes of "float", "set(f32, i64)" or "f32".
  std::vector<bp_dtype> dtypes_of(const bp_op_argument& a, std::string_view text) const {
    std::vector<bp_dtype> dtypes;
    if (const std::string_view set = dtypes_of_set(text); !set.empty()) {
      text = set;
    } else if (text.starts_with("set(") && text.ends_with(")")) {
      text = text.substr(4, text.size() - 5);
    } else {
      return {dtype_named(a, text)};
    }
    while (!text.empty()) {
      const size_t end = std::min(text.find(','), text.size());
      dtypes.push_back(dtype_named(a, text.substr(0, end)));
      text.remove_prefix(std::min(end + 1, text.size()));
      while (text.starts_with(' ')) text.remove_prefix(1);
    }
    if (dtypes.empty()) draft_.reject(a, "its set of dtypes is empty");
    for (const bp_dtype dtype : dtypes) {
      if (std::ranges::count(dtypes, dtype) == 1) continue;
      draft_.reject(a, "its set of dtypes has " + dtype_text(dtype) + " twice");
    }
    return dtypes;
  }

  void read_dtype(bp_op_argument& a, RuntimeArgument& made) {
    if (!is_tensor_kind(a.kind)) {
      if (a.dtype_rule != nullptr) draft_.reject(a, "it is no tensor, and has a dtype_rule");
      return;
    }
    if (a.dtype_rule == nullptr) draft_.reject(a, "a tensor needs a dtype_rule");
    a.dtype_rule = draft_.keep(a.dtype_rule);
    if (const auto other = other_rule(a, a.dtype_rule)) {
      std::tie(made.dtype_rule, made.other) = *other;
    } else {
      made.dtypes = dtypes_of(a, a.dtype_rule);
      made.dtype_rule = made.dtypes.size() == 1 ? DtypeRule::fixed : DtypeRule::free;
    }
    const bool is_like = made.dtype_rule == DtypeRule::like;
    if (a.kind == BP_ARGUMENT_OPERAND && !is_like) {
      draft_.reject(a, "the dtype_rule of an operand is like(x)");
    }
    if (a.kind == BP_ARGUMENT_SCALAR_TENSOR && !is_like && made.dtype_rule != DtypeRule::fixed) {
      draft_.reject(a, "the dtype_rule of a scalar that may be a tensor is like(x) or one dtype");
    }
    if (made.dtype_rule == DtypeRule::free) {
      a.dtypes = made.dtypes.data();
      a.dtype_count = static_cast<uint32_t>(made.dtypes.size());
    }
    read_default_dtype(a, made);
  }

  void read_default_dtype(bp_op_argument& a, RuntimeArgument& made) {
    if (a.default_dtype == nullptr) return;
    if (!is_output_kind(a.kind) || made.dtype_rule != DtypeRule::free) {
      draft_.reject(a, "only a free output has a default_dtype");
    }
    a.default_dtype = draft_.keep(a.default_dtype);
    if (const auto other = other_rule(a, a.default_dtype)) {
      std::tie(made.default_rule, made.default_other) = *other;
      return;
    }
    made.default_rule = DtypeRule::fixed;
    made.default_dtype = dtype_named(a, a.default_dtype);
    if (std::ranges::count(made.dtypes, made.default_dtype) != 0) return;
    draft_.reject(a, std::string("its default_dtype is ") + a.default_dtype +
                         ", which is none of its dtypes");
  }

  void read_rule(const bp_op_argument& a, const char* what, const char*& text, RuleType type,
                 Rule& rule) {
    if (text == nullptr) return;
    text = draft_.keep(text);
    const std::string fault = Rule::parse(text, rule_arguments_, rule);
    if (!fault.empty()) draft_.reject(a, std::string(what) + " \"" + text + "\", " + fault);
    for (uint32_t i = 0; i < made_.described.size(); ++i) {
      const bp_op_argument& named = made_.described[i];
      if ((rule.names() >> i & 1) == 0 || !is_output_kind(named.kind)) continue;
      if (named.shape_rule != nullptr && std::strcmp(named.shape_rule, "given") == 0) continue;
      draft_.reject(a, std::string(what) + " \"" + text + "\" reads " + named.name +
                           ", an output whose shape is not \"given\"");
    }
    if (rule.type() == type) return;
    draft_.reject(a, std::string(what) + " \"" + text + "\" is no " +
                         (type == RuleType::dims ? "shape" : "number"));
  }

  void read_rank(bp_op_argument& a, RuntimeArgument& made) {
    if (a.rank_rule == nullptr) return;
    const std::string_view text = a.rank_rule;
    if (const size_t middle = text.find(" to "); middle != text.npos) {
      const char* const end = text.data() + text.size();
      const auto low = std::from_chars(text.data(), end, made.min_rank);
      const auto high = std::from_chars(text.data() + middle + 4, end, made.max_rank);
      if (low.ptr == text.data() + middle && high.ptr == end && made.min_rank <= made.max_rank &&
          low.ec == std::errc() && high.ec == std::errc()) {
        a.rank_rule = draft_.keep(a.rank_rule);
        return;
      }
    }
    read_rule(a, "rank_rule", a.rank_rule, RuleType::number, made.rank);
  }

  // Reads the bounds of a double, which are numbers.
  void read_number(const bp_op_argument& a, const char* what, const char*& text, double& number) {
    if (text == nullptr) return;
    text = draft_.keep(text);
    const char* const end = text + std::strlen(text);
    const auto read = std::from_chars(text, end, number);
    if (read.ec == std::errc() && read.ptr == end) return;
    draft_.reject(a, std::string(what) + " \"" + text + "\" is no number");
  }

  void read_bounds(bp_op_argument& a, RuntimeArgument& made) {
    const bool may_have = a.kind >= BP_ARGUMENT_I32 && a.kind <= BP_ARGUMENT_I64_LIST;
    const bool has = a.at_least != nullptr || a.at_most != nullptr || a.below != nullptr;
    if (has && !may_have) draft_.reject(a, "an argument of its kind has no bounds");
    if (a.at_most != nullptr && a.below != nullptr) {
      draft_.reject(a, "it has at_most and below; give one of them");
    }
    if (a.kind == BP_ARGUMENT_F64) {
      made.has_number_bounds = has;
      read_number(a, "at_least", a.at_least, made.least);
      read_number(a, "at_most", a.at_most, made.most);
      read_number(a, "below", a.below, made.less_than);
      return;
    }
    read_rule(a, "at_least", a.at_least, RuleType::number, made.at_least);
    read_rule(a, "at_most", a.at_most, RuleType::number, made.at_most);
    read_rule(a, "below", a.below, RuleType::number, made.below);
  }

  // Returns the number of a bound that is the same for every call.
  static std::optional<double> fixed(const Rule& rule) {
    if (!rule.is_given() || rule.names() != 0) return std::nullopt;
    return static_cast<double>(rule.evaluate(nullptr).number);
  }

  // Refuses bounds that leave no number, or not the default, or not the zero of older callers.
  void check_bounds(const bp_op_argument& a, const RuntimeArgument& made) const {
    const bool is_real = a.kind == BP_ARGUMENT_F64;
    const auto bound = [&](const char* text, double real, const Rule& rule) {
      return is_real && text != nullptr ? std::optional(real) : fixed(rule);
    };
    const std::optional<double> least = bound(a.at_least, made.least, made.at_least),
                                most = bound(a.at_most, made.most, made.at_most),
                                below = bound(a.below, made.less_than, made.below);
    const auto allows = [&](double value) {
      return (!least || value >= *least) && (!most || value <= *most) && (!below || value < *below);
    };
    if (least && !allows(*least)) draft_.reject(a, "its bounds allow no number");
    if (a.since > given_.since && !allows(0)) {
      draft_.reject(a,
                    "its bounds forbid 0, which older callers give, because a later revision "
                    "appends it");
    }
    if (a.default_value.dtype == 0 || a.kind == BP_ARGUMENT_ENUM) return;
    double given = 0;
    std::memcpy(&given, &a.default_value.bits, sizeof(given));
    if (!is_real) given = static_cast<double>(static_cast<int64_t>(a.default_value.bits));
    if (!allows(given)) draft_.reject(a, "its default is outside of its bounds");
  }

  void read_default(bp_op_argument& a) {
    a.default_value = {};
    if (a.default_text == nullptr) return;
    a.default_text = draft_.keep(a.default_text);
    const std::string_view text = a.default_text;
    const char* const end = text.data() + text.size();
    for (uint32_t i = 0; i < a.value_count; ++i) {
      if (text == a.value_names[i]) a.default_value = {BP_I64, 0, uint64_t{a.first_value} + i};
    }
    if (a.kind == BP_ARGUMENT_ENUM) {
      if (a.default_value.dtype == 0) draft_.reject(a, "its default is none of its values");
      return;
    }
    double real = 0;
    int64_t whole = 0;
    if (a.kind == BP_ARGUMENT_F64) {
      if (std::from_chars(text.data(), end, real).ptr != end) return;
      a.default_value.dtype = BP_F64;
      std::memcpy(&a.default_value.bits, &real, sizeof(real));
    } else if (!is_tensor_kind(a.kind) && a.kind != BP_ARGUMENT_I64_LIST) {
      if (std::from_chars(text.data(), end, whole).ptr != end) return;
      a.default_value = {BP_I64, 0, static_cast<uint64_t>(whole)};
    }
  }

  void read_rules(uint32_t index) {
    bp_op_argument& a = made_.described[index];
    RuntimeArgument& made = made_.arguments.emplace_back();
    read_dtype(a, made);
    const bool has_shape = is_tensor_kind(a.kind) && a.kind != BP_ARGUMENT_SCALAR_TENSOR;
    if (a.shape_rule != nullptr && !has_shape)
      draft_.reject(a, "an argument of its kind has no shape");
    if (a.shape_rule != nullptr && std::strcmp(a.shape_rule, "given") == 0) {
      if (!is_output_kind(a.kind)) draft_.reject(a, "only the shape of an output is \"given\"");
      made.is_given = true;
      a.shape_rule = draft_.keep(a.shape_rule);
    } else {
      read_rule(a, "shape_rule", a.shape_rule, RuleType::dims, made.shape);
    }
    const bool is_plain_output = a.kind == BP_ARGUMENT_OUT || a.kind == BP_ARGUMENT_OPTIONAL_OUT;
    if (is_plain_output && a.shape_rule == nullptr && !made_.infers) {
      draft_.reject(a, "an output needs a shape_rule, or the description an infer()");
    }
    read_rank(a, made);
    if (a.count_rule != nullptr && !is_list_kind(a.kind))
      draft_.reject(a, "only a list has a count_rule");
    read_rule(a, "count_rule", a.count_rule, RuleType::number, made.count);
    read_bounds(a, made);
    read_default(a);
    check_bounds(a, made);
    check_aliases(a);
  }

  void check_aliases(const bp_op_argument& a) const {
    for (uint32_t i = 0; i < 64; ++i) {
      if ((a.may_alias >> i & 1) == 0) continue;
      const bool is_input = i < made_.described.size() && is_tensor_kind(made_.described[i].kind) &&
                            !is_output_kind(made_.described[i].kind);
      if (is_input && is_output_kind(a.kind)) continue;
      draft_.reject(a, "may_alias has bit " + std::to_string(i) +
                           "; an output may be the memory of inputs alone");
    }
  }

  // Puts each argument behind those whose dtype it follows.
  void order_dtypes() {
    std::vector<uint8_t> state(made_.arguments.size());  // 1: begun, 2: done.
    for (uint32_t i = 0; i < state.size(); ++i) visit(i, state);
  }

  void visit(uint32_t i, std::vector<uint8_t>& state) {
    const RuntimeArgument& a = made_.arguments[i];
    if (state[i] == 2 || a.dtype_rule == DtypeRule::none) return;
    if (state[i] == 1) draft_.reject(made_.described[i], "its dtype follows from itself");
    state[i] = 1;
    const auto follows = [](DtypeRule rule) {
      return rule == DtypeRule::like || rule == DtypeRule::accumulator || rule == DtypeRule::sum;
    };
    if (follows(a.dtype_rule)) visit(a.other, state);
    if (follows(a.default_rule)) visit(a.default_other, state);
    state[i] = 2;
    made_.dtype_order.push_back(i);
  }

  OpDraft& draft_;
  const bp_op_desc& given_ = draft_.given;
  RuntimeOp& made_ = *draft_.made;
  std::vector<RuleArgument> rule_arguments_;
};

}  // namespace

void read_rules(OpDraft& draft) { RuleReader(draft).read(); }

}  // namespace bp::core
