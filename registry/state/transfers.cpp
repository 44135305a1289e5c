// The C functions of transfers.h.
#include "backplane/transfers.h"

#include <cstddef>

#include "registry/boundary/fail.hpp"
#include "registry/boundary/guard.hpp"
#include "registry/boundary/prefix.hpp"
#include "registry/services/transfers.hpp"
#include "registry/state/program_refusal.hpp"
#include "registry/state/state.hpp"

namespace bp::core {
namespace {

using services::Cache;
using services::CopySide;

// The size of the struct in the first release. It stays the same when members are added.
constexpr uint32_t kFirstCopy = offsetof(bp_tensor_copy_desc, user_data) + sizeof(void*);

bp_status make_side(const bp_target* target, const bp_tensor* tensor, bp_stream* stream,
                    CopySide& out_side) {
  out_side = {target, nullptr, stream, tensor};
  if (target == nullptr) return BP_OK;
  if (impl(target).cache == nullptr) return backend_unloaded(target->name);
  out_side.cache = impl(target).cache.get();
  out_side.pinned = impl(target).pinned.get();
  if (stream == nullptr) out_side.stream = target->default_stream;
  return BP_OK;
}

bp_status copy_tensor(const bp_tensor_copy_desc& desc) {
  if (desc.dst == nullptr) return is_null("copy_tensor: desc: dst");
  if (desc.src == nullptr) return is_null("copy_tensor: desc: src");
  CopySide dst, src;
  bp_status status = make_side(desc.dst_target, desc.dst, desc.dst_stream, dst);
  if (status == BP_OK) status = make_side(desc.src_target, desc.src, desc.src_stream, src);
  if (status != BP_OK) return status;
  const bool is_launch = dst.target == src.target && dst.stream == src.stream;
  for (const CopySide* side : {&dst, &src}) {
    if (side->target == nullptr || (is_launch && desc.release == nullptr)) continue;
    status = refuse_in_program(impl(side->target), side->stream, "copy_tensor");
    if (status != BP_OK) return status;
  }
  return services::copy_tensor(dst, src, {desc.release, desc.user_data}, bp_op_launch);
}

}  // namespace
}  // namespace bp::core

// NOLINTNEXTLINE(google-build-using-namespace): the functions below are the namespace's C API.
using namespace bp::core;
using bp::is_null;

// NOLINTNEXTLINE(readability-function-size): transfers.h has these arguments.
bp_status bp_block_upload(bp_block* block, uint64_t byte_offset, const void* src,
                          uint64_t size_bytes, bp_stream* stream, bp_stream_callback_fn* release,
                          void* user_data) {
  return guarded([&]() -> bp_status {
    if (block == nullptr) return is_null("block");
    if (src == nullptr && size_bytes != 0) return is_null("src");
    bp_buffer_ref place;
    const bp_target* target = nullptr;
    bp_status status =
        Cache::find_place(block, byte_offset, size_bytes, "upload", stream, place, target);
    if (status == BP_OK) status = refuse_in_program(impl(target), stream, "block.upload");
    if (status != BP_OK) return status;
    return bp::services::upload({*target, impl(target).pinned.get(), stream, place}, src,
                                {release, user_data});
  });
}

// NOLINTNEXTLINE(readability-function-size): transfers.h has these arguments.
bp_status bp_block_download(bp_block* block, uint64_t byte_offset, void* dst, uint64_t size_bytes,
                            bp_stream* stream, bp_stream_callback_fn* release, void* user_data) {
  return guarded([&]() -> bp_status {
    if (block == nullptr) return is_null("block");
    if (dst == nullptr && size_bytes != 0) return is_null("dst");
    bp_buffer_ref place;
    const bp_target* target = nullptr;
    bp_status status =
        Cache::find_place(block, byte_offset, size_bytes, "download", stream, place, target);
    if (status == BP_OK) status = refuse_in_program(impl(target), stream, "block.download");
    if (status != BP_OK) return status;
    return bp::services::download(dst, {*target, impl(target).pinned.get(), stream, place},
                                  {release, user_data});
  });
}

bp_status bp_copy_tensor(const bp_tensor_copy_desc* desc) {
  return guarded([&]() -> bp_status {
    if (desc == nullptr) return is_null("desc");
    const std::string defect = struct_defect(desc, BP_STRUCT_TENSOR_COPY_DESC, kFirstCopy);
    if (!defect.empty()) return bp::fail(BP_INCOMPATIBLE, "copy_tensor: desc: " + defect);
    bp_tensor_copy_desc ours{};
    uint32_t offset = 0;
    if (bp_struct_read(desc, kFirstCopy, &ours, sizeof(ours), &offset) != BP_OK) {
      return bp::fail(BP_INCOMPATIBLE, "copy_tensor: desc: byte " + std::to_string(offset) +
                                           " is not zero, and this host does not know it");
    }
    return copy_tensor(ours);
  });
}
