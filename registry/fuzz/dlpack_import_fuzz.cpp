// Fuzzes tensors of another library. Each is refused with a text, or its elements lie in the memory
// that was wrapped for it; an accepted tensor can be exported again.
#include <algorithm>
#include <cstring>
#include <string>

#include "api/fuzz/fuzz.hpp"
#include "backplane/dlpack.h"
#include "registry/tests/fake_backend.hpp"

namespace {

using bp::fuzz::check;

constexpr int32_t kDevice = 2;

// The memory that is wrapped, and the tensors that have not ended.
struct World {
  World() {
    fake.devices[0].properties.dlpack_device_type = kDevice;
    fake.allocator.address = [](void*, bp_buffer* buffer, uint64_t* out) -> bp_status {
      *out = reinterpret_cast<uintptr_t>(buffer);
      return BP_OK;
    };
    fake.allocator.wrap_address = [](void*, bp_device*, uint64_t address, uint64_t size_bytes,
                                     bp_buffer** out) -> bp_status {
      wrapped_address = address;
      wrapped_bytes = size_bytes;
      // NOLINTNEXTLINE(performance-no-int-to-ptr): the ABI has addresses as numbers.
      *out = reinterpret_cast<bp_buffer*>(address);
      return BP_OK;
    };
    fake.allocator.deallocate = [](void*, bp_buffer*, bp_stream*) -> bp_status { return BP_OK; };
    fake.allocator.copy = [](void*, bp_stream*, const bp_buffer_ref* range,
                             const bp_buffer_ref*) -> bp_status {
      return range->byte_offset + range->size_bytes > wrapped_bytes ? BP_INVALID_ARGUMENT : BP_OK;
    };
    check(fake.load(r.registry) == BP_OK, "the backend of the target loads", bp_error_text());
  }

  static inline uint64_t wrapped_address = 0, wrapped_bytes = 0;
  bp::core::FakeBackend fake;  // Outlives the registry.
  bp::core::TestRegistry r;
};

// Takes bytes off the front of the input, or zeros behind its end.
template <typename T>
T take(std::string_view& input) {
  T value{};
  const size_t size = std::min(sizeof(T), input.size());
  std::memcpy(&value, input.data(), size);
  input.remove_prefix(size);
  return value;
}

int live = 0;

// Checks that the extreme element in the direction of `sign` lies in the wrapped memory.
void check_corner(const bp_tensor& t, uint64_t item_bytes, int sign) {
  if (std::count(t.shape, t.shape + t.ndim, 0) != 0) return;  // It has no element.
  auto offset = static_cast<int64_t>(t.byte_offset);
  for (uint32_t i = 0; i < t.ndim; ++i) {
    if ((t.strides[i] < 0) == (sign < 0)) {
      int64_t reach = 0;
      const bool is_counted = !__builtin_mul_overflow(t.strides[i], t.shape[i] - 1, &reach) &&
                              !__builtin_mul_overflow(reach, item_bytes, &reach) &&
                              !__builtin_add_overflow(offset, reach, &offset);
      check(is_counted, "what was taken can be counted in 64 bits");
    }
  }
  check(offset >= 0 && static_cast<uint64_t>(offset) + item_bytes <= World::wrapped_bytes,
        "each element lies in the memory that was wrapped");
}

void hand_out(const bp_target* target, const bp_foreign_tensor& tensor) {
  const bp_dlpack_export_desc desc{.struct_size = sizeof(desc),
                                   .struct_type = BP_STRUCT_DLPACK_EXPORT_DESC,
                                   .next = nullptr,
                                   .tensor = &tensor.tensor,
                                   .flags = 0,
                                   .release = nullptr,
                                   .user_data = nullptr};
  bp_dlpack_managed* managed = nullptr;
  check(bp_dlpack_export(target, &desc, &managed) == BP_OK, "what was taken can be handed out",
        bp_error_text());
  check(managed->tensor.ndim == static_cast<int32_t>(tensor.tensor.ndim), "it has the same rank");
  managed->deleter(managed);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static World world;
  std::string_view input = bp::fuzz::text_of(data, size);
  bp_dlpack_managed m{};
  m.version_major = take<uint8_t>(input);
  m.flags = take<uint64_t>(input);
  const auto presence = take<uint8_t>(input);
  m.tensor.device = {kDevice + (presence >> 2 & 1), 0};
  m.tensor.ndim = take<int32_t>(input);
  m.tensor.dtype = take<bp_dlpack_dtype>(input);
  m.tensor.byte_offset = take<uint64_t>(input);
  const auto address = take<uint64_t>(input);
  // NOLINTNEXTLINE(performance-no-int-to-ptr): nobody reads there.
  m.tensor.data = reinterpret_cast<void*>(address);
  int64_t shape[BP_MAX_RANK], strides[BP_MAX_RANK];
  for (int64_t& extent : shape) extent = take<int64_t>(input);
  for (int64_t& stride : strides) stride = take<int64_t>(input);
  m.tensor.shape = (presence & 1) != 0 ? nullptr : shape;
  m.tensor.strides = (presence & 2) != 0 ? nullptr : strides;
  m.deleter = [](bp_dlpack_managed*) { --live; };
  live = 1;
  World::wrapped_address = World::wrapped_bytes = 0;
  bp_error_clear();
  const bp_foreign_tensor* tensor = nullptr;
  const bp_status status = bp_dlpack_import(world.r.target(), &m, &tensor);
  if (status != BP_OK) {
    check(*bp_error_text() != '\0', "a refusal has a text");
    check(tensor == nullptr && live == 1, "a tensor that was refused stays the caller's");
    return 0;
  }
  const uint64_t item_bytes = bp_dtype_bits(tensor->tensor.dtype) / 8;
  check_corner(tensor->tensor, item_bytes, 1);
  check_corner(tensor->tensor, item_bytes, -1);
  hand_out(world.r.target(), *tensor);
  check(bp_foreign_tensor_release(tensor) == BP_OK && live == 0, "its release ends it once");
  return 0;
}
