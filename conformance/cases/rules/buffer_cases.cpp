// Cases for tensors whose memory is missing or too small. bp_op_check() finds faults without asking
// a backend, bp_op_check_buffers() asks the backend's allocator where a buffer ends, and a launch
// never follows NULL. A tensor without elements needs no memory at all.
//
// No case here passes a buffer of another backend: a handle is an address, and a backend may follow
// only its own handles (foreign_buffer_cases.cpp).
#include "conformance/cases/rules/buffer_cases.hpp"

#include <algorithm>
#include <map>
#include <memory>

#include "conformance/cases/engine/host_call.hpp"
#include "conformance/cases/engine/op_engine.hpp"
#include "conformance/cases/fixtures/fixtures.hpp"
#include "registry/tensors/strides.hpp"

namespace bp::conformance {
namespace {

// A call whose tensors lie in buffers of the device that are no larger than needed. It never
// reaches a kernel, so the device need not list its dtypes.
class DeviceCall {
 public:
  DeviceCall(Context& t, const OpCase& row) : t_(t), row_(row), call_(row) {
    for (size_t i = 0; i < row.tensors.size(); ++i) {
      const TensorArgument& argument = row.tensors[i];
      const Placement placement = place(argument.layout, argument.shape);
      const auto bits = static_cast<uint32_t>(dtype_bits(argument.dtype));
      const auto before = static_cast<uint64_t>(-placement.lowest);
      const auto behind = static_cast<uint64_t>(placement.highest + 1);
      buffers_.push_back(make_buffer(
          t, tensors::packed_bytes(before, bits) + tensors::packed_bytes(behind, bits)));
      call_.tensor(i).buffer = buffers_.back().get();
    }
  }

  HostCall& host() { return call_; }

  bp_status check() { return bp_op_check(row_.op, call_.frame().data()); }
  bp_status check_buffers() {
    return bp_op_check_buffers(&t_.target(), row_.op, call_.frame().data());
  }
  bp_status launch() {
    return bp_op_launch(&t_.target(), nullptr, 0, row_.op, call_.frame().data());
  }

 private:
  Context& t_;
  const OpCase& row_;
  HostCall call_;
  std::vector<OwnedBuffer> buffers_;
};

// Requires that the call was refused with a text that names the op and the argument.
void expect_refused(Context& t, const OpCase& row, std::string_view argument, bp_status status,
                    const std::string& what) {
  const std::string text = bp_error_text();
  bp_error_clear();
  const std::string at = std::string(argument) + ": " + what;
  t.expect_eq(status, BP_INVALID_ARGUMENT, at);
  if (status != BP_INVALID_ARGUMENT) return;
  const std::string head = std::string(op_info(row.op).name) + ": " + std::string(argument);
  t.expect(text.find(head) != std::string::npos,
           at + ": the sentence does not name \"" + head + "\": " + text);
}

// For each tensor, calls bend(call, index) on a call of its own, and then ask(call).
template <typename Bend, typename Ask>
void refuse_each(Context& t, const OpCase& row, const std::string& what, Bend bend, Ask ask) {
  for (size_t i = 0; i < row.tensors.size(); ++i) {
    DeviceCall call(t, row);
    if (!bend(call.host(), i)) continue;
    expect_refused(t, row, row.tensors[i].name, ask(call), what);
  }
}

void elements_without_a_buffer(Context& t, const OpCase& row) {
  const auto take_away = [](HostCall& call, size_t i) {
    call.tensor(i).buffer = nullptr;
    return true;
  };
  refuse_each(t, row, "checked without a buffer", take_away,
              [](DeviceCall& call) { return call.check(); });
  refuse_each(t, row, "launched without a buffer", take_away,
              [](DeviceCall& call) { return call.launch(); });
}

void offset_between_elements(Context& t, const OpCase& row) {
  const auto shift = [](HostCall& call, size_t i) {
    call.tensor(i).byte_offset += 1;
    return bp_dtype_bits(call.tensor(i).dtype) > 8;
  };
  refuse_each(t, row, "a byte_offset that is 1 more", shift,
              [](DeviceCall& call) { return call.check(); });
}

void elements_before_the_buffer(Context& t, const OpCase& row) {
  const auto turn = [](HostCall& call, size_t i) {
    for (size_t axis = 0; axis < call.shape(i).size(); ++axis) {
      if (call.shape(i)[axis] < 2) continue;
      call.strides(i)[axis] = -call.strides(i)[axis];
      return true;
    }
    return false;
  };
  refuse_each(t, row, "an axis that leads to before the buffer", turn,
              [](DeviceCall& call) { return call.check(); });
}

void elements_behind_the_buffer(Context& t, const OpCase& row) {
  DeviceCall whole(t, row);
  t.require_ok(whole.check_buffers(), "bp_op_check_buffers of tensors that fill their buffers");
  const auto shift = [](HostCall& call, size_t i) {
    call.tensor(i).byte_offset += element_size(call.tensor(i).dtype);
    return true;
  };
  refuse_each(t, row, "one element behind its buffer", shift,
              [](DeviceCall& call) { return call.check_buffers(); });
  const auto shift_far = [](HostCall& call, size_t i) {
    call.tensor(i).byte_offset = uint64_t{1} << 62;
    return true;
  };
  refuse_each(t, row, "2^62 bytes behind its buffer", shift_far,
              [](DeviceCall& call) { return call.check_buffers(); });
}

bool is_empty(const TensorArgument& argument) { return element_count(argument.shape) == 0; }

// Launches each row with empty tensors that have no buffer, and checks the other results.
void empty_needs_no_buffer(Context& t, const OpCases& rows) {
  Variant variant;
  variant.has_empty_buffers = false;
  for (const OpCase& row : rows) {
    require_listed(t, row);
    const CallData data(row, t.seed());
    Observation seen;
    try {
      seen = observe(t, row, data, variant);
    } catch (const NoKernel& none) {
      t.not_supported("the backend has no kernel for this call: " + none.what);
    }
    if (seen.launch_status != BP_OK || seen.stream_status != BP_OK) {
      const bp_status status =
          seen.launch_status != BP_OK ? seen.launch_status : seen.stream_status;
      t.add({row.id() + ": " + bp_status_name(status) + ": " + seen.status_text, "no_buffer", ""});
      continue;
    }
    const Verdict verdict = judge(row, data, seen);
    if (!verdict.is_right()) t.add({row.id() + ": " + verdict.message, "no_buffer", ""});
  }
}

struct Rule {
  const char* sentence;
  std::vector<std::string> tags;
  void (*run)(Context&, const OpCase&);
};

Case make_entry(const OpCase& row, const char* kind, const char* sentence,
                std::vector<std::string> tags) {
  Case entry;
  entry.id = std::string(kind) + "." + sentence + "." + std::string(op_info(row.op).name);
  entry.tags = std::move(tags);
  entry.group = "bad input";
  entry.op = row.op;
  return entry;
}

// Returns, for each op, the dense rows of one dtype that have an empty tensor.
std::map<uint32_t, OpCases> empty_rows(const OpCases& rows) {
  std::map<uint32_t, OpCases> by_op;
  for (const OpCase& row : rows) {
    if (row.layout != "dense" || row.fails_on_device) continue;
    if (std::ranges::none_of(row.tensors, is_empty)) continue;
    OpCases& chosen = by_op[row.op];
    if (chosen.empty() || chosen.front().dtype == row.dtype) chosen.push_back(row);
  }
  return by_op;
}

}  // namespace

void add_buffer_cases(std::vector<Case>& cases, const OpCases& rows) {
  static const Rule kRules[] = {
      {"elements_without_a_buffer", {"TENSOR-4", "ERROR-1"}, elements_without_a_buffer},
      {"offset_between_elements", {"TENSOR-1", "ERROR-1"}, offset_between_elements},
      {"elements_before_the_buffer", {"TENSOR-5", "ERROR-1"}, elements_before_the_buffer},
      {"elements_behind_the_buffer", {"TENSOR-5", "MEMORY-1"}, elements_behind_the_buffer},
  };
  for (const OpCase* base : widest_of_each_op(rows)) {
    const auto shared = std::make_shared<const OpCase>(*base);
    for (const Rule& rule : kRules) {
      cases.push_back(make_entry(*base, "bad_input", rule.sentence, rule.tags));
      cases.back().run = [shared, &rule](Context& t) { rule.run(t, *shared); };
    }
  }
  for (auto& [op, chosen] : empty_rows(rows)) {
    const OpCase& first = chosen.front();
    cases.push_back(make_entry(first, "kernel", "empty_needs_no_buffer", {"TENSOR-2", "TENSOR-4"}));
    const auto shared = std::make_shared<const OpCases>(std::move(chosen));
    cases.back().run = [shared](Context& t) { empty_needs_no_buffer(t, *shared); };
  }
}

}  // namespace bp::conformance
