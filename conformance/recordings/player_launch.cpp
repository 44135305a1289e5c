// Runs the launches of a recording and checks their results.
#include <algorithm>
#include <cstring>

#include "backplane/registry.hpp"
#include "conformance/numerics/agreement.hpp"
#include "conformance/recordings/player.hpp"
#include "conformance/usage_error.hpp"
#include "registry/boundary/number_text.hpp"

namespace bp::conformance {
namespace {

using nlohmann::json;

// Returns the tensors of a launch in the order of the case that it replaces.
std::vector<const RecordedTensor*> in_order_of(const OpCase& op_case,
                                               const RecordedLaunch& launch) {
  std::vector<const RecordedTensor*> ordered;
  std::map<std::string_view, size_t> taken;
  for (const TensorArgument& argument : op_case.tensors) {
    size_t skip = taken[argument.name]++;
    for (const RecordedTensor& tensor : launch.tensors) {
      if (tensor.name == argument.name && skip-- == 0) ordered.push_back(&tensor);
    }
  }
  return ordered;
}

// Returns the name of a tensor as the recording writes it; for a tensor of a list "params[1]".
std::string name_of(const RecordedLaunch& launch, const RecordedTensor& tensor) {
  std::string name(tensor.name);
  if (!op_info(launch.op).member(tensor.name).is_list()) return name;
  size_t position = 0;
  for (const RecordedTensor& each : launch.tensors) {
    if (&each == &tensor) break;
    position += each.name == tensor.name ? 1 : 0;
  }
  return name + "[" + std::to_string(position) + "]";
}

std::string place_words(int64_t element, const Shape& shape) {
  std::string text = "[";
  for (const int64_t c : coordinates(element, shape)) {
    text += (text.size() == 1 ? "" : ", ") + std::to_string(c);
  }
  return text + "]";
}

std::string value_words(bp_dtype dtype, const std::byte* bytes) {
  const DoubleDouble value = load_element(dtype, bytes);
  if (!is_float(dtype)) return std::to_string(to_int64(value));
  return short_text(value.hi, 9);
}

bool is_known(bp_dtype dtype) {
  constexpr bp_dtype kInOrder[] = {BP_BOOL, BP_I8,  BP_I16, BP_I32, BP_I64, BP_U8,
                                   BP_U64,  BP_F16, BP_F32, BP_F64, BP_BF16};
  return std::ranges::count(kInOrder, dtype) != 0;
}

// Describes the difference of one output, which begins at `begin` of its buffer; "" if all elements
// are equal.
std::string element_difference(const RecordedTensor& tensor, const std::vector<std::byte>& seen,
                               const std::vector<std::byte>& recorded) {
  if (seen == recorded) return "";
  if (!is_known(tensor.dtype)) return std::string(tensor.name) + " has other bytes";
  const uint64_t begin = span_of(tensor).begin, size = element_size(tensor.dtype);
  uint64_t count = 0, differing = 0;
  std::string first;
  visit_elements(tensor, element_size(tensor.dtype), [&](int64_t element, uint64_t byte) {
    ++count;
    const std::byte* here = seen.data() + (byte - begin);
    const std::byte* there = recorded.data() + (byte - begin);
    if (std::memcmp(here, there, size) == 0) return;
    if (++differing > 1) return;
    first = std::string(tensor.name) + place_words(element, tensor.shape) + " is " +
            value_words(tensor.dtype, here) + " here and " + value_words(tensor.dtype, there) +
            " in the recording";
  });
  if (first.empty()) return "";
  return first + "; " + std::to_string(differing) + " of " + std::to_string(count) +
         " elements differ";
}

// Returns whether the results of two kernels of a described op differ by rounding alone. [OP-8]
bool agrees(const RecordedTensor& tensor, const std::vector<std::byte>& seen,
            const std::vector<std::byte>& recorded) {
  if (!is_known(tensor.dtype)) return seen == recorded;
  const uint64_t begin = span_of(tensor).begin, size = element_size(tensor.dtype);
  const auto value = [&](const std::vector<std::byte>& bytes, uint64_t byte) {
    return load_element(tensor.dtype, bytes.data() + (byte - begin)).hi;
  };
  Agreement agreement(tensor.dtype);
  visit_elements(tensor, size,
                 [&](int64_t, uint64_t byte) { agreement.add(value(recorded, byte)); });
  bool holds = true;
  visit_elements(tensor, size, [&](int64_t, uint64_t byte) {
    const bool is_equal =
        std::memcmp(seen.data() + (byte - begin), recorded.data() + (byte - begin), size) == 0;
    holds &= is_equal || agreement.holds(value(seen, byte), value(recorded, byte));
  });
  return holds;
}

bp_dispatch_statistics statistics(const bp_target& target, uint32_t op) {
  bp_dispatch_statistics counts{.struct_size = sizeof(counts),
                                .struct_type = BP_STRUCT_DISPATCH_STATISTICS};
  static_cast<void>(bp_target_statistics(&target, op, &counts));
  return counts;
}

// Calls visit(bit in the buffer) for each element in row-major order.
template <typename Visit>
void visit_bits(const RecordedTensor& tensor, Visit&& visit) {
  visit_elements(tensor, dtype_bits(tensor.dtype), [&](int64_t, uint64_t place) {
    visit(8 * tensor.byte_offset + (place - tensor.byte_offset));
  });
}

// Returns whether the op was described at run time, so that no oracle knows it.
bool is_described(const RecordedLaunch& launch) { return launch.op >= 1u << 16; }

bool has_elements(const RecordedTensor& tensor) { return element_count(tensor.shape) != 0; }

}  // namespace

LineResult Player::launch(size_t index) {
  const json& line = recording_.lines()[index];
  const RecordedLaunch launch = read_launch(line);
  const auto on = line.at("stream").get<uint64_t>();
  const bp_target& target = *device(line.at("device").get<uint64_t>()).target;
  Frame frame(launch.op);
  std::vector<bp_tensor> tensors;
  fill_frame(launch, frame, tensors);
  // While a stream waits for the host, the player must not wait for a stream.
  const bool can_wait = !is_held();
  const std::optional<OpCase> op_case = can_wait ? launch_oracles().case_of(launch) : std::nullopt;
  std::vector<Elements> inputs;
  if (op_case) {
    for (const RecordedTensor* tensor : in_order_of(*op_case, launch)) {
      inputs.push_back(tensor->role == Role::kOutput ? Elements{} : read_elements(*tensor, on));
    }
  }
  const bp_kernel_choice choice = run_kernel(launch, target, stream(on).stream, frame);
  note_launched(line, launch);
  LineResult result;
  if (can_wait) {
    wait(on, ("the stream behind " + launch.words()).c_str());
    result = judge(line, launch, op_case ? &*op_case : nullptr, inputs, choice.kernel);
  } else {
    if (!parted_.unjudged) parted_.unjudged = launch.words();
    result = {Outcome::kSkip,
              {"ran, and was not judged: a stream waits for a signal of the host", "", ""},
              "",
              ""};
  }
  result.kernel = choice.kernel->name == nullptr ? "" : choice.kernel->name;
  if (choice.source != BP_KERNEL_NATIVE) {
    result.why_fallback = explain(target, launch.flags, launch.op, frame.data());
  }
  if (choice.source == BP_KERNEL_DECOMPOSED) result.source = "decomposed";
  if (choice.source == BP_KERNEL_HOST_FALLBACK) result.source = "host";
  return result;
}

// Notes which memory is in use, and which bytes the launch writes.
void Player::note_launched(const json& line, const RecordedLaunch& launch) {
  if (line.contains("workspace")) {
    const bp_buffer_ref workspace = range(line.at("workspace"));
    buffer(line.at("workspace").at(0).get<uint64_t>())
        .written.erase(workspace.byte_offset, workspace.byte_offset + workspace.size_bytes);
  }
  for (const RecordedTensor& tensor : launch.tensors) {
    use(tensor.buffer, line.at("stream").get<uint64_t>());
    if (tensor.role == Role::kInput || tensor.buffer == 0) continue;
    ByteSet& written = buffer(tensor.buffer).written;
    const ByteSpan span = span_of(tensor);
    // The bytes of packed elements count from the first one to the last.
    const uint64_t size = bp_dtype_bits(tensor.dtype) / 8;
    const auto count = static_cast<uint64_t>(element_count(tensor.shape));
    if (size == 0 || span.end - span.begin == count * size) {
      written.insert(span.begin, span.end);
    } else {
      visit_elements(tensor, size,
                     [&](int64_t, uint64_t byte) { written.insert(byte, byte + size); });
    }
  }
}

// Runs a kernel of the backend, or else the decomposition of the op or a device of the host. The
// counts of the registry show which it was.
bp_kernel_choice Player::run_kernel(const RecordedLaunch& launch, const bp_target& target,
                                    bp_stream* stream, const Frame& frame) const {
  const bp_dispatch_statistics before = statistics(target, launch.op);
  const bp_status status = bp_op_launch(&target, stream, launch.flags, launch.op, frame.data());
  if (status == BP_UNSUPPORTED) {
    const std::string reasons = bp_error_text();
    bp_error_clear();
    throw Broken{Outcome::kMissing,
                 {launch.words() + ": nothing on " + target.name +
                      " runs it, and the replay ends here: " + reasons,
                  "missing", ""}};
  }
  check(status, launch.words());
  const bp_dispatch_statistics after = statistics(target, launch.op);
  bp_kernel_sources source = BP_KERNEL_NATIVE;
  if (after.decomposed_count != before.decomposed_count) source = BP_KERNEL_DECOMPOSED;
  if (after.host_fallback_count != before.host_fallback_count) source = BP_KERNEL_HOST_FALLBACK;
  bp_kernel_choice choice{};
  check(bp_kernel_find(&target, launch.flags, source, launch.op, frame.data(), &choice),
        launch.words());
  return choice;
}

// Judges the results by the oracle, if there is one. Otherwise the outputs must equal those of the
// recording.
LineResult Player::judge(const json& line, const RecordedLaunch& launch, const OpCase* op_case,
                         const std::vector<Elements>& inputs, const bp_kernel* kernel) {
  const auto on = line.at("stream").get<uint64_t>();
  const bool has_outputs = line.contains("outputs") && !recording_.source().seeds_weights;
  const std::string differs = has_outputs ? difference(line, launch, on) : "";
  if (!differs.empty() && !parted_.parted) parted_.parted = launch.words();
  if (op_case != nullptr) {
    std::vector<OutputView> outputs;
    for (const RecordedTensor* tensor : in_order_of(*op_case, launch)) {
      if (tensor->role != Role::kInput) outputs.push_back(read_output(*tensor, on));
    }
    const Verdict verdict = judge_launch(*op_case, inputs, std::move(outputs), kernel);
    if (!verdict.is_right()) {
      if (!parted_.wrong) parted_.wrong = launch.words();
      return {Outcome::kFail,
              {launch.words() + ": " + verdict.message, verdict.cause, verdict.tag},
              "",
              ""};
    }
    const bool is_equal = has_outputs && differs.empty();
    parted_.has_rounding = parted_.has_rounding || !is_equal;
    return {.checked = is_equal ? "oracle and bits" : "oracle"};
  }
  if (!differs.empty() && is_described(launch) && agrees(line, launch, on)) {
    parted_.has_rounding = true;
    return {.checked = "within the bounds of a described op"};
  }
  if (!differs.empty()) {
    if (!parted_.unjudged) parted_.unjudged = launch.words();
    return {Outcome::kFail,
            {launch.words() + ": " + differs + ", and no oracle says whether that is within bounds",
             "different", ""},
            "",
            ""};
  }
  if (has_outputs) return {.checked = "bits"};
  if (!parted_.unjudged) parted_.unjudged = launch.words();
  return {Outcome::kSkip,
          {"ran, and was not judged: no oracle of " + launch.op_name() +
               " follows its shapes, and its outputs are not recorded",
           "", ""},
          "",
          ""};
}

// Returns whether all outputs differ from the recorded ones by rounding alone.
bool Player::agrees(const json& line, const RecordedLaunch& launch, uint64_t on) {
  const json& recorded = line.at("outputs");
  return std::ranges::all_of(launch.tensors, [&](const RecordedTensor& tensor) {
    const std::string name = name_of(launch, tensor);
    if (tensor.role == Role::kInput || !has_elements(tensor) || !recorded.contains(name)) {
      return true;
    }
    return bp::conformance::agrees(tensor, read_tensor(tensor, on),
                                   recording_.payload(recorded.at(name)));
  });
}

// Describes the first output whose bits differ from the recorded ones.
std::string Player::difference(const json& line, const RecordedLaunch& launch, uint64_t on) {
  const json& recorded = line.at("outputs");
  for (const RecordedTensor& tensor : launch.tensors) {
    const std::string name = name_of(launch, tensor);
    if (tensor.role == Role::kInput || !has_elements(tensor) || !recorded.contains(name)) continue;
    const std::vector<std::byte> seen = read_tensor(tensor, on);
    const std::vector<std::byte> bytes = recording_.payload(recorded.at(name));
    if (bytes.size() != seen.size()) {
      throw UsageError("output " + name + " has " + std::to_string(bytes.size()) +
                       " recorded bytes, and covers " + std::to_string(seen.size()));
    }
    std::string text = element_difference(tensor, seen, bytes);
    if (!text.empty()) return text;
  }
  return "";
}

// ---- Tensors ------------------------------------------------------------------------------------

std::vector<std::byte> Player::read_tensor(const RecordedTensor& tensor, uint64_t on) {
  const ByteSpan span = span_of(tensor);
  std::vector<std::byte> bytes(span.end - span.begin);
  if (bytes.empty()) return bytes;
  const Buffer& from = buffer(tensor.buffer);
  const bp_buffer_ref src{from.buffer, span.begin, bytes.size()};
  const bp_allocator_ops& memory = *device(from.device).target->allocator;
  check(memory.copy_to_host(memory.self, stream(on).stream, bytes.data(), &src,
                            BP_BORROW_DURING_CALL, UINT64_MAX),
        "memory.copy_to_host");
  return bytes;
}

Elements Player::read_elements(const RecordedTensor& tensor, uint64_t on) {
  const std::vector<std::byte> bytes = read_tensor(tensor, on);
  const uint64_t begin = span_of(tensor).begin;
  Elements elements;
  visit_bits(tensor, [&](uint64_t bit) {
    elements.push_back(load_at_bit(tensor.dtype, bytes.data(), bit - 8 * begin));
  });
  return elements;
}

OutputView Player::read_output(const RecordedTensor& tensor, uint64_t on) {
  const std::vector<std::byte> bytes = read_tensor(tensor, on);
  const uint64_t begin = span_of(tensor).begin;
  OutputView view{tensor.name, tensor.dtype, tensor.shape, {}, {}, false, {}, true};
  visit_bits(tensor, [&](uint64_t bit) {
    view.value.push_back(load_at_bit(tensor.dtype, bytes.data(), bit - 8 * begin));
    view.bits.push_back(element_bits_at_bit(tensor.dtype, bytes.data(), bit - 8 * begin));
  });
  view.is_unwritten.assign(view.value.size(), false);
  return view;
}

void Player::fill_frame(const RecordedLaunch& launch, Frame& frame,
                        std::vector<bp_tensor>& tensors) {
  tensors.reserve(launch.tensors.size());  // The frame points to the elements, so they must not
                                           // move.
  for (const RecordedTensor& each : launch.tensors) {
    bp_tensor& tensor = tensors.emplace_back();
    tensor.shape = each.shape.data();
    tensor.strides = each.strides.data();
    tensor.ndim = static_cast<uint32_t>(each.shape.size());
    tensor.dtype = each.dtype;
    if (each.buffer != 0) {
      const Buffer& in = buffer(each.buffer);
      const ByteSpan span = span_of(each);
      if (span.end < span.begin || span.end > in.size_bytes) {
        throw UsageError(launch.words() + ": '" + std::string(each.name) + "' leaves buffer " +
                         std::to_string(each.buffer) + " of " + std::to_string(in.size_bytes) +
                         " bytes");
      }
      tensor.buffer = in.buffer;
      tensor.byte_offset = each.byte_offset;
    } else if (has_elements(each)) {
      throw UsageError(launch.words() + ": '" + std::string(each.name) + "' has no buffer");
    }
    if (op_info(launch.op).member(each.name).is_list()) {
      frame.add_tensor(each.name, &tensor);
    } else {
      frame.set_tensor(each.name, &tensor);
    }
  }
  for (const Attribute& each : launch.attributes) {
    if (const auto* integer = std::get_if<int64_t>(&each.value)) {
      frame.set_integer(each.name, *integer);
    } else if (const auto* number = std::get_if<double>(&each.value)) {
      frame.set_number(each.name, *number);
    } else if (const auto* list = std::get_if<Shape>(&each.value)) {
      frame.set_list(each.name, *list);
    } else {
      frame.set_scalar(each.name, std::get<bp_scalar>(each.value));
    }
  }
}

}  // namespace bp::conformance
