#include "trial.h"

#include <algorithm>
#include <cstring>

#include "log.h"
#include "op_info.h"
#include "view.h"

namespace bpg {
namespace {

// Offsets of tensors within this many bytes are kept: a device may ask for their alignment.
constexpr uint64_t kKeptOffset = 128;

template <typename T>
void add(std::string& key, const T* values, uint64_t count) {
  key.append(reinterpret_cast<const char*>(&count), sizeof(count));
  if (count != 0) key.append(reinterpret_cast<const char*>(values), count * sizeof(T));
}

void add_tensor(std::string& key, const TrialTensor& each) {
  const bp_tensor& t = *each.tensor;
  const uint64_t facts[] = {t.dtype, t.byte_offset % kKeptOffset,
                            static_cast<uint64_t>(each.same_as),
                            reinterpret_cast<uintptr_t>(t.layout)};
  add(key, facts, std::size(facts));
  add(key, t.shape, t.ndim);
  add(key, t.strides, t.ndim);
}

// All of a call but its memory: the frame without pointers, what its lists have, and its tensors.
std::string key_of(uint32_t op, const void* args, const std::vector<TrialTensor>& tensors) {
  const OpInfo& info = op_info(op);
  uint32_t size = 0;
  std::memcpy(&size, args, sizeof(size));
  std::string key;
  add(key, &op, 1);
  std::string frame(static_cast<const char*>(args), size);
  const auto clear = [&](uint32_t offset) {
    frame.replace(offset, sizeof(void*), sizeof(void*), 0);
  };
  for (const OpInfo::Argument& argument : info.inputs) {
    // Whether a tensor is given decides, and not where it is.
    void* place = nullptr;
    std::memcpy(&place, frame.data() + argument.offset, sizeof(place));
    clear(argument.offset);
    if (place != nullptr) frame[argument.offset] = 1;
  }
  for (const OpInfo::Argument& argument : info.outputs) clear(argument.offset);
  for (const uint32_t offset : info.integer_lists) clear(offset);
  add(key, frame.data(), frame.size());
  for (const uint32_t offset : info.integer_lists) {
    const auto* const place = static_cast<const std::byte*>(args) + offset;
    add(key, *reinterpret_cast<const int64_t* const*>(place),
        *(reinterpret_cast<const uint64_t*>(place) - 1));
  }
  for (const TrialTensor& each : tensors) add_tensor(key, each);
  return key;
}

uint64_t bytes_of(const bp_tensor& t) {
  if (t.layout != nullptr) return t.layout->physical_size_bytes;
  int64_t last = 0;
  for (uint32_t i = 0; i < t.ndim; ++i) {
    if (t.shape[i] == 0) return 0;
    last += (t.shape[i] - 1) * t.strides[i];
  }
  return static_cast<uint64_t>(last + 1) * bp_dtype_bits(t.dtype) / 8;
}

// Gives the tensors of a call memory of zeros, and takes it back at its end.
class Memory {
 public:
  Memory(const bp_target* target, bp_stream* stream, const std::vector<TrialTensor>& tensors)
      : target_(target), stream_(stream), tensors_(tensors) {
    for (const TrialTensor& each : tensors) given_.push_back(*each.tensor);
  }
  ~Memory() {
    for (size_t i = 0; i < given_.size(); ++i) *tensors_[i].tensor = given_[i];
    for (bp_block* block : blocks_) bp_block_free(block);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  bp_status place() {
    for (const TrialTensor& each : tensors_) {
      bp_tensor& tensor = *each.tensor;
      if (each.same_as >= 0) {
        tensor.buffer = tensors_[each.same_as].tensor->buffer;
        tensor.byte_offset = tensors_[each.same_as].tensor->byte_offset;
        continue;
      }
      const bp_status status = place(tensor);
      if (status != BP_OK) return status;
    }
    return BP_OK;
  }

 private:
  bp_status place(bp_tensor& tensor) {
    const uint64_t offset = tensor.byte_offset % kKeptOffset, bytes = bytes_of(tensor);
    bp_block* block = nullptr;
    const bp_status status =
        bp_block_allocate(target_, stream_, offset + std::max<uint64_t>(bytes, 1), &block);
    if (status != BP_OK) return status;
    blocks_.push_back(block);
    tensor.buffer = block->ref.buffer;
    tensor.byte_offset = block->ref.byte_offset + offset;
    const uint8_t zero = 0;
    const bp_buffer_ref all{tensor.buffer, tensor.byte_offset, bytes};
    const bp_allocator_ops* const memory = target_->allocator;
    return memory->fill(memory->self, stream_, &all, &zero, sizeof(zero));
  }

  const bp_target* target_;
  bp_stream* stream_;
  const std::vector<TrialTensor>& tensors_;
  std::vector<bp_tensor> given_;
  std::vector<bp_block*> blocks_;
};

}  // namespace

Trials::~Trials() {
  if (stream_ != nullptr) target_->streams->destroy(target_->streams->self, stream_);
}

bp_status Trials::run(uint32_t op, const void* args, const std::vector<TrialTensor>& tensors) {
  const bp_stream_ops* const streams = target_->streams;
  if (stream_ == nullptr) {
    const bp_status status = streams->create(streams->self, target_->device, nullptr, &stream_);
    if (status != BP_OK) return status;
  }
  Memory memory(target_, stream_, tensors);
  const bp_status placed = memory.place();
  if (placed != BP_OK) return placed;
  const bp_status launched = bp_op_launch(target_, stream_, 0, op, args);
  if (launched != BP_OK) return launched;
  // Zeros may be no legal input, such as a divisor. That says nothing against the device.
  if (streams->synchronize(streams->self, stream_, UINT64_MAX) != BP_OK) {
    streams->clear_failure(streams->self, stream_);
    bp_error_clear();
  }
  return BP_OK;
}

void Trials::require(uint32_t op, const void* args, const std::vector<TrialTensor>& tensors) {
  const std::string key = key_of(op, args, tensors);
  const std::lock_guard lock(mutex_);
  const auto known = refusals_.find(key);
  std::string refusal;
  if (known != refusals_.end()) {
    refusal = known->second;
  } else {
    const bp_status status = run(op, args, tensors);
    if (status == BP_UNSUPPORTED) refusal = bp_error_text();
    if (status != BP_OK && status != BP_UNSUPPORTED) {
      throw Refusal(failure_text(status, std::string("a trial of ") + bp_op_name(op)));
    }
    refusals_[key] = refusal;
  }
  if (!refusal.empty()) throw Refusal(refusal);
}

}  // namespace bpg
