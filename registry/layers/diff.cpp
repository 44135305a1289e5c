// diff: runs each launch on a second backend too, on copies of its tensors, and compares the
// outputs element by element: the first op whose results part is the first line of the log.
//
//   launch(args) --> copies of the buffers behind the tensors, before --> second backend
//        |                                                                     |
//   first backend --> copies of the outputs  --------- compared with --------- outputs
//
// It waits for each launch, and copies through the host: it is slow, and a stream that waits for
// something which the same thread does later would wait for ever.
#include <cmath>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>

#include "backplane/registry.hpp"
#include "registry/call.hpp"
#include "registry/fail.hpp"
#include "registry/layers/directory.hpp"
#include "registry/layers/elements.hpp"
#include "registry/layers/footprint.hpp"
#include "registry/layers/list.hpp"
#include "registry/layers/record_frame.hpp"
#include "registry/layers/words.hpp"

namespace bp::layers {
namespace {

// Offsets keep their alignment to this in the copies.
constexpr uint64_t kAlignment = 512;

// The part of one buffer that the tensors of a launch cover, and its copy on the second backend.
struct Part {
  uint64_t begin = UINT64_MAX, end = 0;
  std::vector<unsigned char> bytes;
  BlockHandle block;

  bp_buffer_ref copy() const {
    return {block->ref.buffer, block->ref.byte_offset + begin % kAlignment, bytes.size()};
  }
};

using Parts = std::map<bp_buffer*, Part>;

// The tensors of a frame that points to copies of them.
struct ShadowFrame {
  alignas(8) std::byte bytes[core::kMaxFrameBytes];
  std::deque<bp_tensor> tensors;
  std::deque<std::vector<const bp_tensor*>> lists;
};

class DiffLayer final : public Layer {
 public:
  using Layer::Layer;

  bp_status check() override {
    if (options().text("backend").empty()) {
      return fail(BP_INVALID_ARGUMENT,
                  "layer diff: option diff.backend is missing; give the name or path of the "
                  "backend to compare with");
    }
    const std::string& bound = options().text("bound");
    if (bound.empty()) return BP_OK;
    char* end = nullptr;
    bound_ = std::strtod(bound.c_str(), &end);
    if (*end == '\0' && std::isfinite(bound_) && bound_ >= 0) return BP_OK;
    return fail(BP_INVALID_ARGUMENT,
                "layer option diff.bound is '" + bound + "', allowed are numbers from 0");
  }

  bp_status begin(const bp_backend& /*next*/) override {
    bp_registry_flags flags = BP_REGISTRY_FORBID_HOST_FALLBACK;
    if (setup().ignores_environment) flags |= BP_REGISTRY_IGNORE_ENVIRONMENT;
    const bp_registry_desc desc{
        .struct_size = sizeof(bp_registry_desc),
        .struct_type = BP_STRUCT_REGISTRY_DESC,
        .flags = flags,
        .search_path = setup().has_search_path ? setup().search_path.c_str() : nullptr,
        .log = setup().log.log,
        .user_data = setup().log.user_data,
        .layers = ""};
    second_ = std::make_unique<Registry>(&desc);
    if (second_->get() == nullptr) return BP_OUT_OF_MEMORY;
    const bp_plugin* plugin = nullptr;
    const Status status = second_->load(options().text("backend"), {}, &plugin);
    if (!status.ok()) {
      return fail(status.code, "layer option diff.backend: " + status.message);
    }
    target_ = bp_registry_target(second_->get(), 0);
    return BP_OK;
  }

  void on_table(AnyTable table) override { directory_.add(table); }

  bool on_kernel(WrappedKernel& kernel) override {
    const std::string& glob = options().text("kernels");
    if (glob.empty() || fits_glob(kernel.kernel.name, glob)) {
      replace<&DiffLayer::launch>(kernel.kernel.launch);
    }
    return true;
  }

  bp_status shut_down(const bp_backend& next) override {
    log(BP_LOG_INFO, std::to_string(compared_count_.load()) + " launches were compared, " +
                         std::to_string(report_count()) + " differ, " +
                         std::to_string(skipped_count_.load()) + " were not compared");
    target_ = nullptr;
    second_.reset();
    return next.shutdown(next.self);
  }

  bp_status launch(const WrappedKernel& kernel, const bp_launch* launch, const void* args) {
    const auto pass_on = [&] { return kernel.next->launch(kernel.next, launch, args); };
    const core::OpRow* row = core::find_op(kernel.kernel.op);
    const bp_allocator_ops* memory =
        launch == nullptr ? nullptr : directory_.allocator(launch->device);
    if (row == nullptr || memory == nullptr || args == nullptr ||
        core::frame_size(args) < row->frame_size_bytes ||
        core::frame_size(args) > core::kMaxFrameBytes) {
      skip(op_words(kernel.kernel.op), "its frame is not known here");
      return pass_on();
    }
    const std::vector<FrameTensor> arguments = frame_tensors(*row, args);
    for (const FrameTensor& each : arguments) {
      if (each.tensor == nullptr || each.tensor->layout == nullptr) continue;
      skip(row->name, each.name + " has a layout of the backend's own");
      return pass_on();
    }
    Parts parts = parts_of(arguments);
    bp_status status = read(*memory, launch->stream, parts);
    if (status != BP_OK) return status;
    // Results of the second: its copies hold what the first has not written yet.
    const Status other = run_second(*row, *launch, args, parts);
    status = pass_on();
    if (status != BP_OK) return status;
    if (!other.ok()) {
      skip(row->name, other.message);
      return status;
    }
    return compare(*memory, launch->stream, kernel, arguments, parts);
  }

 private:
  static Parts parts_of(const std::vector<FrameTensor>& arguments) {
    Parts parts;
    for (const FrameTensor& argument : arguments) {
      const Footprint where = footprint_of(*argument.tensor);
      if (where.is_empty()) continue;
      Part& part = parts[where.buffer];
      part.begin = std::min(part.begin, where.begin);
      part.end = std::max(part.end, where.end);
    }
    for (auto& [buffer, part] : parts) part.bytes.resize(part.end - part.begin);
    return parts;
  }

  static bp_status read(const bp_allocator_ops& memory, bp_stream* stream, Parts& parts) {
    for (auto& [buffer, part] : parts) {
      const bp_buffer_ref range{buffer, part.begin, part.end - part.begin};
      const bp_status status = memory.copy_to_host(memory.self, stream, part.bytes.data(), &range,
                                                   BP_BORROW_DURING_CALL);
      if (status != BP_OK) return status;
    }
    return BP_OK;
  }

  // The frame with tensors in the copies.
  static void fill_shadow(const core::OpRow& row, const void* args, const Parts& parts,
                          ShadowFrame& shadow) {
    std::memcpy(shadow.bytes, args, core::frame_size(args));
    const auto copy = [&](const bp_tensor* tensor) -> const bp_tensor* {
      if (tensor == nullptr) return nullptr;
      bp_tensor& own = shadow.tensors.emplace_back(*tensor);
      const auto part = parts.find(tensor->buffer);
      if (part == parts.end()) {
        own.buffer = nullptr;  // Without elements.
        return &own;
      }
      const bp_buffer_ref range = part->second.copy();
      own.buffer = range.buffer;
      own.byte_offset = range.byte_offset + tensor->byte_offset - part->second.begin;
      return &own;
    };
    for (uint32_t i = 0; i < row.tensor_count; ++i) {
      const core::TensorArgument& a = row.tensors[i];
      const void* pointer = nullptr;
      if (!a.is_list()) {
        pointer = copy(core::tensor_at(args, a));
      } else {
        const core::TensorList list = core::list_at(args, a);
        auto& items = shadow.lists.emplace_back();
        for (uint64_t n = 0; n < list.count; ++n) items.push_back(copy(list.items[n]));
        pointer = items.data();
      }
      std::memcpy(shadow.bytes + a.offset, &pointer, sizeof(pointer));
    }
  }

  // Leaves what the second backend has written in `bytes` of the parts.
  Status run_second(const core::OpRow& row, const bp_launch& launch, const void* args,
                    Parts& parts) {
    const bp_allocator_ops& memory = *target_->allocator;
    for (auto& [buffer, part] : parts) {
      const Status status =
          allocate(*target_, nullptr, part.bytes.size() + part.begin % kAlignment, &part.block);
      if (!status.ok()) return status;
      const bp_buffer_ref range = part.copy();
      const bp_status copied = memory.copy_from_host(memory.self, target_->default_stream, &range,
                                                     part.bytes.data(), BP_BORROW_DURING_CALL);
      if (copied != BP_OK) return status_of(copied);
    }
    ShadowFrame shadow;
    fill_shadow(row, args, parts, shadow);
    const bp_launch_flags flags = launch.flags & ~uint32_t{BP_LAUNCH_DEVICE_CURRENT};
    const bp_status launched = bp_op_launch(target_, nullptr, flags, row.op, shadow.bytes);
    if (launched != BP_OK) return status_of(launched);
    for (auto& [buffer, part] : parts) {
      const bp_buffer_ref range = part.copy();
      const bp_status copied = memory.copy_to_host(
          memory.self, target_->default_stream, part.bytes.data(), &range, BP_BORROW_DURING_CALL);
      if (copied != BP_OK) return status_of(copied);
    }
    return {};
  }

  bp_status compare(const bp_allocator_ops& memory, bp_stream* stream, const WrappedKernel& kernel,
                    const std::vector<FrameTensor>& arguments, const Parts& parts) {
    Parts first = parts_of(arguments);
    const bp_status status = read(memory, stream, first);
    if (status != BP_OK) return status;
    compared_count_.fetch_add(1, std::memory_order_relaxed);
    for (const FrameTensor& argument : arguments) {
      const auto part = parts.find(argument.tensor->buffer);
      if (!argument.is_written || part == parts.end()) continue;
      const Elements ours{argument.tensor, first.at(part->first).bytes.data(), part->second.begin};
      const Elements theirs{argument.tensor, part->second.bytes.data(), part->second.begin};
      const std::string difference = first_difference(ours, theirs, bound_);
      if (difference.empty()) continue;
      report_difference(kernel, argument, difference, arguments);
      break;
    }
    return BP_OK;
  }

  // A line for the first difference of each op; all are counted.
  void report_difference(const WrappedKernel& kernel, const FrameTensor& argument,
                         const std::string& difference, const std::vector<FrameTensor>& arguments) {
    const std::string op = op_words(kernel.kernel.op);
    {
      const std::lock_guard lock(mutex_);
      if (!differing_.insert(op).second) {
        count_report();
        return;
      }
    }
    std::string call;
    for (const FrameTensor& each : arguments) {
      call += (call.empty() ? "" : ", ") + each.name + " " + words(*each.tensor);
    }
    report(op + ": " + argument.name + " of kernel " + kernel.kernel.name + " is not what " +
           target_->name + " gives: " + difference + " (" + call + ")");
  }

  // A line for the first call of each op that is not compared.
  void skip(const std::string& op, const std::string& why) {
    skipped_count_.fetch_add(1, std::memory_order_relaxed);
    const std::lock_guard lock(mutex_);
    if (skipped_.insert(op).second) log(BP_LOG_INFO, op + " is not compared: " + why);
  }

  double bound_ = -1;  // Below 0: bit for bit.
  std::unique_ptr<Registry> second_;
  const bp_target* target_ = nullptr;
  Directory directory_;
  std::atomic<uint64_t> compared_count_ = 0, skipped_count_ = 0;
  std::mutex mutex_;
  std::set<std::string> differing_, skipped_;  // Ops. Guarded by mutex_.
};

constexpr OptionInfo kOptions[] = {
    {"backend", "name or path of the backend that it compares with"},
    {"bound", "|a - b| <= bound * max(1, |a|, |b|) for floats; default: equal bit for bit"},
    {"kernels", "glob of the kernels that are compared; default all"}};

}  // namespace

constinit const LayerInfo kDiffLayer{"diff", "compares each launch with another backend", kOptions,
                                     make_layer<DiffLayer>};

}  // namespace bp::layers
