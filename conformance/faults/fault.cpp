#include "conformance/faults/fault.hpp"

#include <algorithm>
#include <array>
#include <charconv>

namespace bp::faults {
namespace {

constexpr Word kPlaces[] = {
    {"all", "every element"},
    {"element", "one element at a random index"},
    {"first", "the first element"},
    {"last", "the last element"},
    {"lane16", "one element in 16"},
    {"tail16", "the elements behind the last multiple of 16"},
    {"tail64", "the elements behind the last multiple of 64"},
    {"tail256", "the elements behind the last multiple of 256"},
    {"tail4096", "the elements behind the last multiple of 4096"},
    {"row_tail16", "of each row, the elements behind the last multiple of 16"},
    {"row_tail64", "of each row, the elements behind the last multiple of 64"},
    {"tile16", "one tile of 16 x 16 elements of the last two axes"},
    {"column", "one element of each row, at a random index"},
    {"chunk256", "one of the blocks of 256 elements"},
    {"last_block", "the last 256 elements of a larger tensor"},
    {"last_batch", "the last index of the first axis, from rank 3 on"},
};

constexpr Word kKernelConditions[] = {
    {"always", "in every launch"},
    {"second", "from the second launch of the kernel on"},
    {"third", "in one launch of three"},
    {"other_thread", "in launches from another thread than the first one"},
    {"offset", "where a tensor has a byte offset"},
    {"strided", "where a tensor is not contiguous"},
    {"broadcast", "where a tensor has an axis of stride 0"},
    {"large2^10", "where an output has 2^10 elements or more"},
    {"large2^12", "where an output has 2^12 elements or more"},
    {"large2^16", "where an output has 2^16 elements or more"},
    {"large2^20", "where an output has 2^20 elements or more"},
    {"long2^10", "where an axis has 2^10 elements or more"},
    {"long2^12", "where an axis has 2^12 elements or more"},
    {"odd", "where the last axis of an output is no multiple of 16"},
    {"rank5", "where a tensor has rank 5 or more"},
    {"plan", "in launches with a plan"},
    {"flags", "in launches with flags"},
    {"aliased", "where an output is an input as well"},
    {"optional", "where an optional tensor is given"},
    {"attribute", "where a number among the attributes is not 0"},
    {"inline", "where an inline scalar is used"},
    {"other_stream", "on streams other than the default stream"},
};

constexpr Word kEntryConditions[] = {
    {"always", "in every call"},
    {"second", "from the second call on"},
    {"third", "in one call of three"},
    {"other_thread", "in calls from another thread than the first one"},
    {"offset", "where a range does not begin at byte 0"},
    {"odd", "where a range is no multiple of 16 bytes"},
    {"large2^12", "where a range has 2^12 bytes or more"},
    {"large2^16", "where a range has 2^16 bytes or more"},
    {"large2^20", "where a range has 2^20 bytes or more"},
};

// An adjoint test compares values too, and the probe of a declaration some special ones.
constexpr std::string_view kWrong = "values adjoint";
constexpr std::string_view kWrongSpecial = "values declaration";

constexpr KindOfFault kKernelKinds[] = {
    {"small", "values", kWrong, "wrong by little more than the class allows", Needs::kNothing,
     true},
    {"tenth", "values", kWrong, "a tenth too large", Needs::kFloat, true},
    {"double", "values", kWrong, "added twice", Needs::kNothing, true},
    {"sign", "values", kWrong, "the other sign", Needs::kFloat, true},
    {"zero", "values", kWrong, "0", Needs::kNothing, true},
    {"neighbour", "values", kWrong, "the value of the next element", Needs::kNothing, true},
    {"nan", "special", "nan values adjoint", "NaN in place of a number", Needs::kFloat, true},
    {"inf", "special", kWrong, "infinity in place of a number", Needs::kFloat, true},
    {"lost_nan", "special", kWrongSpecial, "0 in place of NaN", Needs::kFloat, true},
    {"lost_inf", "special", kWrongSpecial, "the largest number in place of infinity", Needs::kFloat,
     true},
    {"toward_zero", "rounding", kWrongSpecial,
     "results of 16 bits one unit nearer to 0, every second one", Needs::kHalf},
    {"flush", "rounding", kWrongSpecial, "undeclared: 0 in place of subnormal numbers",
     Needs::kFloat},
    {"stale", "order", "stale values adjoint nondeterministic", "the value of the launch before",
     Needs::kNothing, true},
    {"unwritten", "unwritten", "unwritten nan values adjoint", "not written", Needs::kNothing,
     true},
    {"skipped", "unwritten", "unwritten nan values adjoint Fail", "nothing is launched",
     Needs::kNothing},
    {"offset_dropped", "inputs", "offset values nan unwritten adjoint",
     "the byte offset of an input is taken for 0", Needs::kNothing},
    {"strides_dropped", "inputs", "stride broadcast values nan adjoint",
     "an input is read as a contiguous one", Needs::kNothing},
    {"exchanged", "inputs", kWrong, "two inputs of one shape are exchanged", Needs::kInputs},
    {"optional_dropped", "inputs", kWrong, "an optional tensor is ignored", Needs::kOptional},
    {"number_off", "inputs", kWrong, "a number among the attributes is an eighth larger",
     Needs::kNumber},
    {"input_written", "memory", "input_modified", "an element of an input is changed",
     Needs::kNothing},
    {"written_behind", "memory", "canary", "16 bytes behind an output are overwritten",
     Needs::kNothing},
    {"written_before", "memory", "canary", "16 bytes before an output are overwritten",
     Needs::kNothing},
    {"refused", "status", "*", "the launch is refused", Needs::kNothing},
    {"device_leak", "leak", "leak", "64 KiB of device memory for each launch are never freed",
     Needs::kNothing},
    {"host_leak", "leak", "leak", "64 bytes of host memory for each launch are never freed",
     Needs::kNothing},
    {"blocking", "rules", "*", "the launch waits for its work", Needs::kNothing},
    {"wrong_stream", "order", "*", "the work goes to the default stream", Needs::kNothing},
    {"late", "order", "unwritten nan values adjoint nondeterministic intermittent",
     "the work runs on when the stream and its events are done", Needs::kNothing},
};

constexpr KindOfFault kEntryKinds[] = {
    {"accepted", "status", "", "a refusal or a failure is told as BP_OK"},
    {"other_status", "status", "", "a refusal or a failure is told with another status"},
    {"failing", "status", "", "the call fails with BP_INTERNAL"},
    {"skipped", "effects", "", "BP_OK without any effect"},
    {"twice", "effects", "", "the call is made twice; what the first one made is lost"},
    {"out_on_failure", "status", "", "a failure changes an out parameter"},
    {"number_off", "effects", "", "a number that is returned is too large by 1"},
    {"short16", "ranges", "", "a range is cut to a multiple of 16 bytes"},
    {"short1", "ranges", "", "the last byte of a range is left out"},
    {"offset_dropped", "ranges", "", "the offset of a range is taken for 0"},
    {"offset_rounded", "ranges", "", "the offset of a range is rounded down to a multiple of 64"},
    {"early", "order", "", "the call does not wait, and reports completion"},
};

template <typename Rows>
bool has_name(const Rows& rows, std::string_view name) {
  return std::ranges::any_of(rows, [&](const auto& row) { return row.name == name; });
}

std::optional<std::array<std::string_view, 6>> parts_of(std::string_view text) {
  std::array<std::string_view, 6> parts;
  for (size_t i = 0; i < parts.size(); ++i) {
    const size_t end = text.find('/');
    if ((end == text.npos) != (i + 1 == parts.size())) return std::nullopt;
    parts[i] = text.substr(0, end);
    if (parts[i].empty()) return std::nullopt;
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
  }
  return parts;
}

}  // namespace

std::string text_of(const Fault& fault) {
  std::string text = fault.subject;
  for (const std::string& part : {fault.dtype, fault.place, fault.when, fault.kind}) {
    text += "/" + part;
  }
  return text + "/" + std::to_string(fault.number);
}

std::optional<Fault> fault_from_text(std::string_view text) {
  const auto parts = parts_of(text);
  if (!parts) return std::nullopt;
  const auto& [subject, dtype, place, when, kind, number] = *parts;
  Fault fault{std::string(subject), std::string(dtype), std::string(place),
              std::string(when),    std::string(kind),  0};
  const auto [end, error] =
      std::from_chars(number.data(), number.data() + number.size(), fault.number);
  if (error != std::errc() || end != number.data() + number.size()) return std::nullopt;
  const KindOfFault* known = kind_of(fault);
  if (known == nullptr) return std::nullopt;
  const auto conditions = fault.is_of_table() ? entry_conditions() : kernel_conditions();
  if (!has_name(conditions, when)) return std::nullopt;
  if (known->has_place ? !has_name(places(), place) : place != "-") return std::nullopt;
  return fault;
}

std::span<const Word> places() { return kPlaces; }
std::span<const Word> kernel_conditions() { return kKernelConditions; }
std::span<const Word> entry_conditions() { return kEntryConditions; }
std::span<const KindOfFault> kernel_kinds() { return kKernelKinds; }
std::span<const KindOfFault> entry_kinds() { return kEntryKinds; }

const KindOfFault* kind_of(const Fault& fault) {
  const std::span<const KindOfFault> kinds = fault.is_of_table() ? entry_kinds() : kernel_kinds();
  const auto found = std::ranges::find(kinds, fault.kind, &KindOfFault::name);
  return found == kinds.end() ? nullptr : &*found;
}

uint64_t mixed(uint64_t seed, uint64_t index) {
  uint64_t z = seed + (index + 1) * 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

}  // namespace bp::faults
