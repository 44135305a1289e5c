// Conversions of layouts (blocks.comp). A conversion between equal layouts copies bytes.
#include "backends/vulkan/kernels/blocks.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <string>

#include "backends/vulkan/kernels/map.hpp"
#include "backends/vulkan/kernels/walk.hpp"

namespace bp::vulkan {
namespace {

// The numbers of the formats that blocks.comp encodes, all with blocks of 32 elements.
constexpr uint32_t kEncoded[] = {2, 3, 6, 7, 8};

constexpr int64_t kMostElements = int64_t{1} << 31;

struct BlocksRecord {
  uint64_t from, to;
  uint64_t count;
  uint32_t extents[BP_MAX_RANK];
  int64_t strides[BP_MAX_RANK];
};

bool is_encoded(uint32_t number) {
  return std::ranges::find(kEncoded, number) != std::end(kEncoded);
}

uint32_t number_of(const std::optional<LayoutForm>& form) { return form ? form->variant : 0; }

// Copies the bytes of a tensor in blocks.
bp_status submit_bytes(Launch& launch, const Conversion& conversion) {
  const int64_t size_bytes =
      static_cast<int64_t>(block_facts(*conversion.src_form).physical_size_bytes);
  const int64_t stride = 1;
  const auto bytes_of = [&](const bp_tensor& tensor) {
    return bp_tensor{.buffer = tensor.buffer,
                     .byte_offset = tensor.byte_offset,
                     .shape = &size_bytes,
                     .strides = &stride,
                     .ndim = 1,
                     .dtype = BP_U8};
  };
  const bp_tensor to = bytes_of(conversion.dst), from = bytes_of(conversion.src);
  return submit_move(launch, kMapCopy, {&to, &from});
}

}  // namespace

const BlockFormat* format_of(const Env& env, const bp_tensor& tensor) {
  const Instance& i = env.owner();
  if (tensor.layout == nullptr) return nullptr;
  try {
    const LayoutForm form = i.layouts->form_of(tensor, "launch: the weight");
    return form.kind == BP_LAYOUT_KIND_QUANTIZED ? find_block_format(form.variant) : nullptr;
  } catch (const StatusError&) {
    return nullptr;  // The caller refuses the call in words.
  }
}

void check_encodes(const Conversion& conversion) {
  const uint32_t number = number_of(conversion.dst_form);
  if (number == 0 || conversion.dst_form == conversion.src_form || is_encoded(number)) return;
  std::string names;
  for (const BlockFormat& each : block_formats()) {
    if (is_encoded(each.number)) names += (names.empty() ? "" : ", ") + std::string(each.name);
  }
  refuse(BP_UNSUPPORTED, "layout.convert: dst: " + std::string(find_block_format(number)->name) +
                             " is decoded, and not encoded; encoded are " + names);
}

bp_status submit_conversion(Launch& launch, const Conversion& conversion) {
  const auto& [dst, src, dst_form, src_form] = conversion;
  const int64_t count = element_count(dst);
  if (count == 0) return BP_OK;
  if (!dst_form && !src_form) return submit_move(launch, kMapCopy, {&dst, &src});
  if (dst_form == src_form) return submit_bytes(launch, conversion);
  if (count > kMostElements) {
    return launch.refuse(BP_UNSUPPORTED, "layout.convert: a tensor has more than 2^31 elements");
  }
  const uint32_t from = number_of(src_form), to = number_of(dst_form);
  BlocksRecord record{.from = launch.device_address(src), .to = launch.device_address(dst)};
  record.count = static_cast<uint64_t>(to == 0 ? count : count / find_block_format(to)->elements);
  std::fill_n(record.extents, BP_MAX_RANK, 1u);
  uint32_t rank = 1;
  if (from == 0 || to == 0) {
    const Walk walk = make_walk({to == 0 ? &dst : &src}, true);
    rank = std::max(walk.rank, 1u);
    for (size_t i = 0; i < walk.rank; ++i) {
      record.extents[i] = static_cast<uint32_t>(walk.extents[i]);
      record.strides[i] = walk.strides[0][i];
    }
  }
  const std::array<uint32_t, 4> constants = {local_size(launch), from, to, rank};
  return submit(launch, kBlocksModule, constants, record,
                ceil_divide(record.count, local_size(launch)),
                {Ranges(launch, {&src}), Ranges(launch, {&dst})});
}

}  // namespace bp::vulkan
