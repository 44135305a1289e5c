// The list of the probes, and the probes that every kind of op has: order and ties.
#include <algorithm>
#include <memory>
#include <set>

#include "conformance/cases/engine/host_call.hpp"
#include "conformance/cases/rules/declarations.hpp"

namespace bp::conformance {
namespace {

std::string dtypes_text(const OpCase& row) {
  std::string text = row.dtype;
  for (const TensorArgument& argument : row.tensors) {
    if (argument.role != Role::kOutput) continue;
    const std::string result = dtype_text(argument.dtype);
    const bool is_fixed = op_info(row.op).member(argument.name).dtype == result;
    if (result != row.dtype && !is_fixed) text += "_to_" + result;
    break;
  }
  return text;
}

// ---- order ------------------------------------------------------------------------------------

// Work for the device on its own stream, which has nothing to do with the probe.
class Load {
 public:
  explicit Load(Context& t) : t_(t), target_(t.target()) {
    const bp_stream_ops& streams = *target_.streams;
    t.require_ok(streams.create(streams.self, target_.device, nullptr, &stream_), "stream.create");
    const bp_allocate_desc desc{.struct_size = sizeof(bp_allocate_desc),
                                .struct_type = BP_STRUCT_ALLOCATE_DESC,
                                .size_bytes = kBytes};
    const bp_allocator_ops& memory = *target_.allocator;
    t.require_ok(memory.allocate(memory.self, target_.device, &desc, &buffer_), "allocate");
  }
  ~Load() {
    target_.allocator->deallocate(target_.allocator->self, buffer_, stream_);
    static_cast<void>(target_.streams->destroy(target_.streams->self, stream_));
  }
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

  void submit() {
    const bp_allocator_ops& memory = *target_.allocator;
    const bp_buffer_ref whole{buffer_, 0, kBytes};
    const uint8_t pattern = 0x5a;
    t_.require_ok(memory.fill(memory.self, stream_, &whole, &pattern, 1), "fill");
  }

 private:
  static constexpr uint64_t kBytes = 1 << 20;
  Context& t_;
  const bp_target& target_;
  bp_stream* stream_ = nullptr;
  bp_buffer* buffer_ = nullptr;
};

// Runs a call 16 times on 8 streams, the second half of them beside other work. The results must be
// equal bit for bit if the kernel declares that.
void probe_order(Context& t, const OpCase& row) {
  constexpr int kPairsOfRuns = 8;
  const CallData data(row, t.seed());
  const Observation first = observe_native(t, row, data);
  const bool is_declared = (first.kernel->flags & BP_KERNEL_DETERMINISTIC) != 0;
  bool is_equal = std::ranges::all_of(first.outputs, &OutputView::is_repeatable);
  Load load(t);
  for (int i = 1; i < kPairsOfRuns && is_equal; ++i) {
    if (i >= kPairsOfRuns / 2) load.submit();
    const Observation again = observe_native(t, row, data);
    for (size_t k = 0; k < again.outputs.size(); ++k) {
      is_equal = is_equal && again.outputs[k].is_repeatable &&
                 again.outputs[k].bits == first.outputs[k].bits;
    }
  }
  const std::string declared = is_declared ? "deterministic" : "any order";
  const std::string probed = is_equal ? "deterministic" : "any order";
  if (is_declared && !is_equal) {
    report_false(t, "order", declared, probed, "16 runs on equal data differ");
  } else {
    report_true(t, declared, probed);
  }
}

// The probe uses the row with most elements, because results that depend on threads differ there
// first.
void add_order_probe(Probings& probes, const Group& group) {
  const OpCase* largest = nullptr;
  const auto size = [](const OpCase& row) {
    int64_t most = 0;
    for (const TensorArgument& argument : row.tensors) {
      most = std::max(most, element_count(argument.shape));
    }
    return most;
  };
  for (const OpCase* row : group) {
    if (row->fails_on_device || row->layout != "dense" || row->fill == "special") continue;
    if (largest == nullptr || size(*row) > size(*largest)) largest = row;
  }
  if (largest == nullptr) return;
  OpCase row = *largest;
  for (TensorArgument& argument : row.tensors) {
    const bool is_integral =
        argument.fill.kind == FillKind::kExactDense || argument.fill.kind == FillKind::kCoord;
    if (holds_numbers(argument) && is_integral) argument.fill = kRandom;
  }
  probes.push_back({"order", std::move(row), probe_order});
}

// ---- tie --------------------------------------------------------------------------------------

// The data have equal extremes everywhere, and again at every 16th place. The probe checks which
// index the kernel gives.
void probe_tie(Context& t, const OpCase& row) {
  for (const bool is_constant : {true, false}) {
    OpCase made = row;
    made.derive = [is_constant](CallData& data) {
      for (HostTensor& tensor : data.tensors()) {
        if (tensor.role == Role::kOutput || !is_float(tensor.dtype)) continue;
        for (size_t i = 0; i < tensor.data.size(); ++i) {
          tensor.data[i] = is_constant || i % 16 == 5 ? 2.0 : 1.0;
        }
      }
    };
    const CallData data(made, t.seed());
    const Observation seen = observe_native(t, made, data);
    const bool is_any = declared_numerics(seen).any_tie;
    const std::vector<Expected> first = made.reference(data, Numerics{});
    std::string evidence;
    for (size_t k = 0; k < seen.outputs.size(); ++k) {
      const OutputView& output = seen.outputs[k];
      for (size_t i = 0; i < output.value.size() && evidence.empty(); ++i) {
        if (output.value[i] == first[k].value[i]) continue;
        evidence = std::string(output.name) + " element " + std::to_string(i) + " is " +
                   std::to_string(output.value[i].hi) + ", the first is " +
                   std::to_string(first[k].value[i].hi);
      }
    }
    const std::string declared = is_any ? "any" : "first";
    const std::string probed = evidence.empty() ? "first" : "any";
    if (!is_any && !evidence.empty()) return report_false(t, "tie", declared, probed, evidence);
    report_true(t, declared, probed);
  }
}

void add_tie_probe(Probings& probes, const Group& group) {
  const OpCase* base = widest(group);
  if (base == nullptr || base->derive || !has_class(*base, {"R3"})) return;
  const bool has_index = std::ranges::any_of(base->tensors, [](const TensorArgument& argument) {
    return argument.role == Role::kOutput && !is_float(argument.dtype);
  });
  const bool has_numbers = std::ranges::any_of(base->tensors, holds_numbers);
  if (has_index && has_numbers) probes.push_back({"tie", *base, probe_tie});
}

Case make_entry(Probing probing) {
  Case entry;
  entry.id = std::string("info.declaration.") + probing.field + "." +
             std::string(op_info(probing.row.op).name) + "." + dtypes_text(probing.row);
  entry.tags = {"KERNEL-8"};
  if (std::string_view(probing.field) == "order") entry.tags = {"KERNEL-6"};
  entry.tier = probing.row.is_smoke ? Tier::kSmoke : Tier::kQuick;
  entry.group = "declaration";
  entry.op = probing.row.op;
  entry.dtype = probing.row.dtype;
  const auto shared = std::make_shared<const OpCase>(std::move(probing.row));
  entry.run = [shared, run = probing.run](Context& t) { run(t, *shared); };
  return entry;
}

}  // namespace

OpCase with_columns(const OpCase& base, std::vector<std::vector<double>> columns) {
  OpCase row = base;
  const auto count = static_cast<int64_t>(columns.front().size());
  for (TensorArgument& argument : row.tensors) argument.shape = {count};
  row.derive = [columns = std::move(columns)](CallData& data) {
    size_t column = 0;
    for (HostTensor& tensor : data.tensors()) {
      if (tensor.role == Role::kOutput || !is_float(tensor.dtype)) continue;
      const std::vector<double>& values = columns[column++ % columns.size()];
      for (size_t i = 0; i < values.size(); ++i) {
        tensor.data[i] = round_to(tensor.dtype, values[i]);
      }
    }
  };
  return row;
}

Numerics declared_numerics(const Observation& seen) {
  const bp_dtype dtype = seen.outputs.empty() ? bp_dtype{BP_F32} : seen.outputs.front().dtype;
  return resolve_numerics(seen.kernel->numerics, dtype);
}

void report_true(Context& t, const std::string& declared, const std::string& probed) {
  t.detail("declared", declared);
  t.detail("probed", probed);
}

void report_false(Context& t, const std::string& field, const std::string& declared,
                  const std::string& probed, const std::string& evidence) {
  report_true(t, declared, probed);
  t.add({"declares " + field + " " + declared + ", and is " + probed + ": " + evidence,
         "declaration", ""});
}

void add_declaration_cases(std::vector<Case>& cases, const OpCases& rows) {
  Probings probes;
  for (const Group& group : groups_of(rows)) {
    add_element_probes(probes, group);
    add_sum_probes(probes, group);
    add_implied_probes(probes, group);
    add_tie_probe(probes, group);
    add_order_probe(probes, group);
  }
  std::set<std::string> ids;  // Groups of an op can also differ in optional tensors only.
  for (Probing& probing : probes) {
    if (!HostCall(probing.row).is_legal()) continue;
    Case entry = make_entry(std::move(probing));
    if (ids.insert(entry.id).second) cases.push_back(std::move(entry));
  }
}

}  // namespace bp::conformance
