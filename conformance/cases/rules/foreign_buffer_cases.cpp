// Cases for buffers that are not the backend's: of another instance of its library, of another of
// its devices, and addresses that nobody gave. A handle is an address, which a backend may follow.
// The layer `validate` knows each handle that the backend behind it has given, and passes no other
// handle on. A host that accepts calls from outside uses this layer, as these cases do.
#include <algorithm>
#include <memory>
#include <optional>
#include <sstream>

#include "conformance/cases/engine/host_call.hpp"
#include "conformance/cases/engine/op_engine.hpp"
#include "conformance/cases/fixtures/fixtures.hpp"
#include "conformance/cases/rules/buffer_cases.hpp"

namespace bp::conformance {
namespace {

struct RegistryEnd {
  void operator()(bp_registry* registry) const { static_cast<void>(bp_registry_destroy(registry)); }
};

// Returns the options for the layer `validate` among the options of a run: "validate.races=fail".
std::string watch_options(const std::string& all) {
  std::string own;
  std::istringstream options(all);
  for (std::string option; std::getline(options, option, ',');) {
    if (option.starts_with("validate.")) own += (own.empty() ? "" : ",") + option;
  }
  return own;
}

// A second instance of the backend, behind the layer.
class WatchedInstance {
 public:
  explicit WatchedInstance(Context& t) : t_(t) {
    const std::string options = watch_options(t.subject().layer_options);
    const bp_registry_desc desc{.struct_size = sizeof(bp_registry_desc),
                                .struct_type = BP_STRUCT_REGISTRY_DESC,
                                .flags = BP_REGISTRY_FORBID_HOST_FALLBACK |
                                         BP_REGISTRY_FORBID_DECOMPOSITION | BP_REGISTRY_COMPILE_OPS,
                                .layers = "validate",
                                .layer_options = options.c_str()};
    bp_registry* made = nullptr;
    t.require_ok(bp_registry_create(&desc, &made), "bp_registry_create");
    registry_.reset(made);
    const Subject& subject = t.subject();
    const bp_status status = bp_registry_load(made, subject.plugin.c_str(), subject.options.size(),
                                              subject.options.data(), nullptr);
    if (status == BP_ALREADY_EXISTS) t.not_supported(bp_error_text());
    t.require_ok(status, "bp_registry_load of a second instance");
  }

  // Returns NULL if the instance has no such device.
  const bp_target* target(uint64_t index) const {
    for (uint64_t i = 0; i < bp_registry_target_count(registry_.get()); ++i) {
      const bp_target* const each = bp_registry_target(registry_.get(), i);
      if (each->index == index) return each;
    }
    return nullptr;
  }
  const bp_target& same_target() const {
    const bp_target* const found = target(t_.target().index);
    t_.require(found != nullptr, "a second instance has the same devices");
    return *found;
  }
  const bp_target* other_target() const { return target(t_.target().index == 0 ? 1 : 0); }

 private:
  Context& t_;
  std::unique_ptr<bp_registry, RegistryEnd> registry_;
};

OwnedBuffer allocate(Context& t, const bp_target& target, uint64_t size_bytes) {
  const bp_allocator_ops& memory = *target.allocator;
  const bp_allocate_desc desc{.struct_size = sizeof(bp_allocate_desc),
                              .struct_type = BP_STRUCT_ALLOCATE_DESC,
                              .size_bytes = size_bytes};
  bp_buffer* buffer = nullptr;
  t.require_ok(memory.allocate(memory.self, target.device, &desc, &buffer), "memory.allocate");
  return OwnedBuffer(buffer, {&memory});
}

uint64_t span_bytes(const TensorArgument& argument) {
  const int64_t span = place(argument.layout, argument.shape).span();
  return static_cast<uint64_t>(std::max<int64_t>(span, 1)) * element_size(argument.dtype);
}

// A call of the row with buffers of `target`, one of which is then replaced by a foreign one.
class WatchedCall {
 public:
  WatchedCall(Context& t, const OpCase& row, const bp_target& target)
      : row_(row), target_(target), call_(row) {
    for (size_t i = 0; i < row.tensors.size(); ++i) {
      buffers_.push_back(allocate(t, target, span_bytes(row.tensors[i])));
      call_.tensor(i).buffer = buffers_.back().get();
    }
  }

  bool has_kernel() {
    bp_kernel_choice choice{};
    const bp_status status =
        bp_kernel_find(&target_, 0, BP_KERNEL_NATIVE, row_.op, call_.frame().data(), &choice);
    bp_error_clear();
    return status == BP_OK;
  }
  void take(size_t tensor, bp_buffer* buffer) { call_.tensor(tensor).buffer = buffer; }
  // Returns the text of a refusal.
  const std::string& text() const { return text_; }
  bp_status launch() {
    const bp_status status = bp_op_launch(&target_, nullptr, 0, row_.op, call_.frame().data());
    const std::string text = bp_error_text();
    // The wait comes before the buffers end. The host may have converted some tensors to layouts
    // before the call was refused.
    const bp_stream_ops& streams = *target_.streams;
    static_cast<void>(streams.synchronize(streams.self, target_.default_stream, kTimeoutNs));
    if (status != BP_OK) text_ = text;
    bp_error_clear();
    return status;
  }

 private:
  const OpCase& row_;
  const bp_target& target_;
  HostCall call_;
  std::vector<OwnedBuffer> buffers_;
  std::string text_;
};

// Launches the call with `foreign` as the buffer of each tensor in turn. Each launch must be
// refused with a text that names the tensor. Returns false if one is accepted, because going on
// could end the process.
bool expect_refused(Context& t, const OpCase& row, const bp_target& target, bp_buffer* foreign,
                    const std::string& what) {
  for (size_t i = 0; i < row.tensors.size(); ++i) {
    WatchedCall call(t, row, target);
    call.take(i, foreign);
    const bp_status status = call.launch();
    const std::string &text = call.text(), name(row.tensors[i].name);
    std::string where = name;
    where.append(" in ").append(what);
    t.expect_eq(status, BP_INVALID_ARGUMENT, where);
    if (status == BP_OK) return false;
    if (status != BP_INVALID_ARGUMENT) continue;
    const bool is_named = text.find("tensor " + name) != std::string::npos;
    t.expect(is_named, where.append(": the sentence does not name it: ").append(text));
  }
  return true;
}

void foreign_buffer(Context& t, const OpCase& row) {
  require_listed(t, row);
  const WatchedInstance instance(t);
  const bp_target& target = instance.same_target();
  uint64_t size = 1;
  for (const TensorArgument& argument : row.tensors) size = std::max(size, span_bytes(argument));
  // The foreign buffers are made before the calls make and free buffers of their own. Otherwise one
  // may get the address of a buffer that has ended, and be refused for that reason alone.
  const OwnedBuffer of_another_instance = allocate(t, t.target(), size);
  const bp_target* const other = instance.other_target();
  std::optional<OwnedBuffer> of_another_device;
  if (other != nullptr) of_another_device.emplace(allocate(t, *other, size));
  if (!WatchedCall(t, row, target).has_kernel()) {
    t.not_supported("the backend has no kernel for this call");
  }
  bool is_safe =
      expect_refused(t, row, target, of_another_instance.get(), "a buffer of another instance");
  if (is_safe && of_another_device.has_value()) {
    is_safe =
        expect_refused(t, row, target, of_another_device->get(), "a buffer of another device");
  }
  alignas(64) std::byte nobodys[64]{};
  if (is_safe) {
    expect_refused(t, row, target, reinterpret_cast<bp_buffer*>(nobodys),
                   "an address that no backend gave");
  }
}

}  // namespace

void add_foreign_buffer_cases(std::vector<Case>& cases, const OpCases& rows) {
  for (const OpCase* base : widest_of_each_op(rows)) {
    const auto shared = std::make_shared<const OpCase>(*base);
    Case entry;
    entry.id = "bad_input.foreign_buffer." + std::string(op_info(base->op).name);
    entry.tags = {"MEMORY-1", "KERNEL-7", "ERROR-1"};
    entry.tier = Tier::kQuick;
    entry.group = "bad input";
    entry.op = base->op;
    entry.run = [shared](Context& t) { foreign_buffer(t, *shared); };
    cases.push_back(std::move(entry));
  }
}

}  // namespace bp::conformance
