// fault: makes calls fail, late, or wrong. The calls are counted, or drawn from a seed, so that a
// user can see how a program handles failures. A call that fails does not reach the backend.
#include <chrono>
#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "registry/boundary/fail.hpp"
#include "registry/boundary/prefix.hpp"
#include "registry/calls/call.hpp"
#include "registry/calls/runtime_ops.hpp"
#include "registry/layers/directory.hpp"
#include "registry/layers/fault_rules.hpp"
#include "registry/layers/footprint.hpp"
#include "registry/layers/list.hpp"
#include "registry/layers/slots.hpp"
#include "registry/layers/words.hpp"

namespace bp::layers {
namespace {

struct StatusName {
  const char* name;
  bp_status status;
};
constexpr StatusName kStatuses[] = {{"invalid_argument", BP_INVALID_ARGUMENT},
                                    {"unsupported", BP_UNSUPPORTED},
                                    {"out_of_memory", BP_OUT_OF_MEMORY},
                                    {"timeout", BP_TIMEOUT},
                                    {"aborted", BP_ABORTED},
                                    {"internal", BP_INTERNAL},
                                    {"stream_failed", BP_STREAM_FAILED}};

// Returns whether the slot frees something. Such a slot succeeds whatever has failed: the header
// says so, and slots.def too.
constexpr bool frees(Slot slot) {
  enum : bool { lost = false, nothing = true };  // The words of slots.def.
  constexpr bool kFrees[] = {
#define BP_SLOT(table, noun, name, presence, gone) gone,
#include "registry/boundary/slots.def"
  };
  const auto index = static_cast<uint32_t>(slot);
  return index < std::size(kFrees) ? kFrees[index] : slot == Slot::kernel_plan_release;
}

// Returns whether a lost device still answers: what it is, and whether it can be brought back.
constexpr bool outlives_loss(Slot slot) {
  return frees(slot) || slot == Slot::device_probe || slot == Slot::device_enumerate ||
         slot == Slot::device_properties || slot == Slot::device_generation ||
         slot == Slot::device_reset;
}

class FaultLayer final : public Layer {
 public:
  using Layer::Layer;

  bp_status check() override {
    uint64_t seed = 0x5eed;
    bp_status status = options().number("fault", "seed", UINT64_MAX, seed);
    seed_ = seed;
    if (status == BP_OK) status = options().number("fault", "delay_us", 60'000'000, delay_us_);
    if (status == BP_OK) status = options().number("fault", "memory", UINT64_MAX, memory_bytes_);
    if (status == BP_OK) status = failing_.read("fail", options().text("fail"), seed);
    if (status == BP_OK) status = delayed_.read("delay", options().text("delay"), seed + 1);
    if (status == BP_OK) status = losing_.read("lost", options().text("lost"), seed + 2);
    if (status == BP_OK) status = wrong_.read("corrupt", options().text("corrupt"), seed + 3);
    if (status == BP_OK) status = dropping_.read("drop", options().text("drop"), seed + 4);
    return status == BP_OK ? read_status() : status;
  }

  void on_table(AnyTable table) override {
    directory_.add(table);
    std::visit([](auto* wrapped) { surround_all<FaultLayer>(*wrapped); }, table);
    visit_table<bp_process_group_ops>(table, [&](bp_process_group_ops& groups) {
      if (!dropping_.is_empty()) replace<&FaultLayer::submit>(groups.submit);
    });
  }

  bool on_kernel(WrappedKernel& kernel) override {
    surround_all<FaultLayer>(kernel);
    return true;
  }

  // A rule with a wrong name injects nothing, and the program seems to stand every fault. The
  // conformance suite reads these lines.
  bp_status shut_down(const bp_backend& next, uint64_t timeout_ns) override {
    const bp_status status = Layer::shut_down(next, timeout_ns);
    if (status == BP_TIMEOUT) return status;
    const std::pair<const char*, const FaultRules*> all[] = {{"fail", &failing_},
                                                             {"delay", &delayed_},
                                                             {"lost", &losing_},
                                                             {"corrupt", &wrong_},
                                                             {"drop", &dropping_}};
    for (const auto& [key, rules] : all) {
      for (const std::string& glob : rules->idle()) {
        report("no call fits '" + glob + "' of fault." + key + ", which injected nothing");
      }
    }
    return status;
  }

  template <Slot kSlot, typename Next, typename... Args>
  bp_status around(Next next, Args... args) {
    if (const bp_status status = before(kSlot, ""); status != BP_OK) return status;
    if constexpr (kSlot == Slot::memory_allocate) return allocate(next, args...);
    if constexpr (kSlot == Slot::memory_deallocate) return deallocate(next, args...);
    if constexpr (kSlot == Slot::device_memory_info) return memory_info(next, args...);
    if constexpr (kSlot == Slot::collective_destroy) forget(args...);
    const bp_status status = next();
    if (kSlot == Slot::device_reset && status == BP_OK) is_lost_ = false;
    return status;
  }

  template <Slot kSlot, typename Next, typename... Args>
  bp_status around_kernel(const WrappedKernel& kernel, Next next, Args... args) {
    const char* name = kernel.kernel.name == nullptr ? "" : kernel.kernel.name;
    if (const bp_status status = before(kSlot, name); status != BP_OK) return status;
    const bp_status status = next();
    if constexpr (kSlot == Slot::kernel_launch) {
      if (status == BP_OK && wrong_.strike(slot_name(kSlot), name) != 0) {
        return corrupt(kernel, args...);
      }
    }
    return status;
  }

 private:
  bp_status read_status() {
    if (!options().has("status")) return BP_OK;
    std::string names;
    for (const StatusName& row : kStatuses) {
      if (options().text("status") == row.name) {
        status_ = row.status;
        return BP_OK;
      }
      names += (names.empty() ? "" : ", ") + std::string(row.name);
    }
    return fail(BP_INVALID_ARGUMENT, "layer option fault.status is '" + options().text("status") +
                                         "', allowed are " + names);
  }

  // Applies the faults that come before a call.
  bp_status before(Slot slot, std::string_view kernel) {
    const std::string_view name = slot_name(slot);
    if (delayed_.strike(name, kernel) != 0) {
      count_report();
      std::this_thread::sleep_for(std::chrono::microseconds(delay_us_));
    }
    if (losing_.strike(name, kernel) != 0) {
      is_lost_ = true;
      note("the devices are lost, at " + std::string(name));
    }
    if (is_lost_ && !outlives_loss(slot)) {
      return fail(BP_DEVICE_LOST,
                  "injected by the layer fault: " + std::string(name) + " on a lost device");
    }
    if (frees(slot)) return BP_OK;
    const uint64_t call = failing_.strike(name, kernel);
    if (call == 0) return BP_OK;
    const std::string text = "call " + std::to_string(call) + " of " + std::string(name) +
                             (kernel.empty() ? "" : "/" + std::string(kernel)) + " fails";
    note(text);
    return fail(status_, "injected by the layer fault: " + text);
  }

  void note(const std::string& what) {
    count_report();
    log(BP_LOG_INFO, what);
  }

  template <typename Next>
  bp_status allocate(Next next, bp_device* device, const bp_allocate_desc* desc,
                     bp_buffer** out_buffer) {
    const bool is_readable = desc != nullptr && desc->struct_size >= sizeof(*desc);
    if (memory_bytes_ == 0 || !is_readable) return next();
    const uint64_t size_bytes = requested_bytes(*desc);
    {
      const std::lock_guard lock(mutex_);
      uint64_t& used = used_bytes_[device];
      if (size_bytes > memory_bytes_ || used > memory_bytes_ - size_bytes) {
        return fail(BP_OUT_OF_MEMORY, "injected by the layer fault: " + std::to_string(size_bytes) +
                                          " bytes were asked for, " + std::to_string(used) +
                                          " of " + std::to_string(memory_bytes_) + " are used");
      }
      used += size_bytes;
    }
    const bp_status status = next();
    const std::lock_guard lock(mutex_);
    if (status == BP_OK) {
      buffers_[*out_buffer] = {device, size_bytes};
    } else {
      used_bytes_[device] -= size_bytes;
    }
    return status;
  }

  template <typename Next>
  bp_status deallocate(Next next, bp_buffer* buffer, bp_stream* /*stream*/) {
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = buffers_.find(buffer); found != buffers_.end()) {
        used_bytes_[found->second.first] -= found->second.second;
        buffers_.erase(found);
      }
    }
    return next();
  }

  template <typename Next>
  bp_status memory_info(Next next, bp_device* device, uint64_t /*heap_index*/,
                        uint64_t* out_free_bytes, uint64_t* out_total_bytes) {
    const bp_status status = next();
    if (status != BP_OK || memory_bytes_ == 0) return status;
    const std::lock_guard lock(mutex_);
    *out_total_bytes = std::min(*out_total_bytes, memory_bytes_);
    *out_free_bytes = std::min(*out_free_bytes, memory_bytes_ - used_bytes_[device]);
    return status;
  }

  // Leaves out the calls of ranks that stay away. Their peers wait for them.
  bp_status submit(const bp_process_group_ops& next, uint64_t call_count,
                   const bp_collective_call* calls, uint64_t call_stride_bytes) {
    const std::string_view name = slot_name(Slot::collective_submit);
    if (const bp_status status = before(Slot::collective_submit, ""); status != BP_OK) {
      return status;
    }
    constexpr uint32_t kWithGroup = offsetof(bp_collective_call, group) + sizeof(void*);
    std::vector<const bp_collective_call*> kept;
    const auto* at = reinterpret_cast<const std::byte*>(calls);
    for (uint64_t i = 0; calls != nullptr && i < call_count; ++i, at += call_stride_bytes) {
      const auto* call = reinterpret_cast<const bp_collective_call*>(at);
      const bool has_group = call->struct_size >= kWithGroup;
      if (!has_group || !is_dropped(call->group, dropping_.strike(name, ""))) kept.push_back(call);
    }
    if (calls == nullptr || kept.size() == call_count) {
      return next.submit(next.self, call_count, calls, call_stride_bytes);
    }
    return kept.empty() ? BP_OK : submit_kept(next, kept);
  }

  // The bytes of a call that a copy has. A call that is too large for a struct is refused for its
  // size, so its header is enough.
  static uint32_t copied_bytes(const bp_collective_call& call) {
    return call.struct_size > core::kMaxStructBytes ? uint32_t{sizeof(bp_struct_header)}
                                                    : call.struct_size;
  }

  // Submits copies of the kept calls. Each call has a size of its own, which may be larger than the
  // caller's distance between calls.
  static bp_status submit_kept(const bp_process_group_ops& next,
                               const std::vector<const bp_collective_call*>& kept) {
    uint64_t stride_words = 0;
    for (const bp_collective_call* call : kept) {
      stride_words =
          std::max<uint64_t>(stride_words, (copied_bytes(*call) + uint64_t{7}) / sizeof(uint64_t));
    }
    std::vector<uint64_t> copies(kept.size() * stride_words);
    for (size_t i = 0; i < kept.size(); ++i) {
      std::memcpy(&copies[i * stride_words], kept[i], copied_bytes(*kept[i]));
    }
    return next.submit(next.self, kept.size(),
                       reinterpret_cast<const bp_collective_call*>(copies.data()),
                       stride_words * sizeof(uint64_t));
  }

  // The handle may belong to another group after the destroy.
  void forget(bp_process_group* group) {
    const std::lock_guard lock(mutex_);
    dropped_.erase(group);
  }

  // `struck` is the number of the call that makes the rank of `group` stay away, or 0.
  bool is_dropped(bp_process_group* group, uint64_t struck) {
    {
      const std::lock_guard lock(mutex_);
      if (dropped_.contains(group)) return true;
      if (struck == 0) return false;
      dropped_.insert(group);
    }
    note("a rank stays away, from its call " + std::to_string(struck) + " of a collective on");
    return true;
  }

  // Flips a bit in the last byte of an element of the first output. In a float that byte has the
  // sign and a part of the exponent. Waits for the launch.
  bp_status corrupt(const WrappedKernel& kernel, const bp_launch* launch, const void* args) {
    const bp_tensor* output = first_output(core::op_of(kernel.kernel), args);
    const bp_allocator_ops* memory = directory_.allocator(launch->device);
    if (output == nullptr || memory == nullptr) return BP_OK;
    const uint32_t bits = bp_dtype_bits(output->dtype);
    const uint64_t bytes = std::max(1u, bits / 8);
    const bp_buffer_ref last{output->buffer, output->byte_offset + bytes - 1, 1};
    const uint64_t number = corrupted_count_.fetch_add(1);
    unsigned char value = 0;
    bp_status status = memory->copy_to_host(memory->self, launch->stream, &value, &last,
                                            BP_BORROW_DURING_CALL, UINT64_MAX);
    if (status != BP_OK) return status;
    value = static_cast<unsigned char>(value ^ 1u << mix(seed_, number) % std::min(bits, 8u));
    status = memory->fill(memory->self, launch->stream, &last, &value, 1);
    if (status == BP_OK) {
      note("a bit of " + words(last) + " is flipped after kernel " +
           std::string(kernel.kernel.name));
    }
    return status;
  }

  // Returns the first output with elements and memory, or NULL if there is none.
  static const bp_tensor* first_output(uint32_t op, const void* args) {
    const core::OpRow* row = core::find_op(op);
    if (row == nullptr || args == nullptr) return nullptr;
    for (uint32_t i = 0; i < row->tensor_count; ++i) {
      const core::TensorArgument& argument = row->tensors[i];
      if (!core::has_member(args, argument.offset)) break;
      const bool is_written = argument.is_output() || argument.kind == core::Kind::inout;
      if (!is_written || argument.is_list()) continue;
      const bp_tensor* tensor = core::tensor_at(args, argument);
      if (tensor == nullptr || tensor->buffer == nullptr) continue;
      if (!std::ranges::count(tensor->shape, tensor->shape + tensor->ndim, 0)) return tensor;
    }
    return nullptr;
  }

  FaultRules failing_, delayed_, losing_, wrong_, dropping_;
  bp_status status_ = BP_INTERNAL;
  uint64_t seed_ = 0, delay_us_ = 1000, memory_bytes_ = 0;
  Directory directory_;
  std::atomic<bool> is_lost_ = false;
  std::atomic<uint64_t> corrupted_count_ = 0;
  std::mutex mutex_;
  std::map<bp_device*, uint64_t> used_bytes_;                      // Guarded by mutex_.
  std::map<bp_buffer*, std::pair<bp_device*, uint64_t>> buffers_;  // Guarded by mutex_.
  std::set<bp_process_group*> dropped_;                            // Guarded by mutex_.
};

constexpr OptionInfo kFaultOptions[] = {
    {"fail", "GLOB@WHEN of the calls that fail, separated by ':', such as memory.allocate@3"},
    {"status", "what they return; default internal"},
    {"delay", "GLOB@WHEN of the calls that begin later"},
    {"delay_us", "by so many microseconds; default 1000"},
    {"lost", "GLOB@WHEN of the call at which the devices are lost"},
    {"corrupt", "GLOB@WHEN of the launches with a flipped bit in an output"},
    {"drop", "collective.submit@WHEN: the rank of that collective call stays away from then on"},
    {"memory", "bytes that each device has; default what it has"},
    {"seed", "a number"}};

}  // namespace

constinit const LayerInfo kFaultLayer{"fault", "makes calls fail, late or wrong", kFaultOptions,
                                      make_layer<FaultLayer>};

}  // namespace bp::layers
