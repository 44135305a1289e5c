// Tests what each function of the public headers does with NULL and with structs of garbage. The
// table has a row for each pointer of each function, and a test fails if a row is missing.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <vector>

#include "backplane/addresses.h"
#include "backplane/blocks.h"
#include "backplane/capture.h"
#include "backplane/dlpack.h"
#include "backplane/pinned.h"
#include "backplane/program.h"
#include "backplane/transfers.h"
#include "registry/tests/fake_backend.hpp"
#include "registry/tests/fake_graphs.hpp"

namespace bp::core {
namespace {

// A registry with one device, one kernel and one handle of each kind.
struct World {
  World() {
    kernel.launch = [](const bp_kernel*, const bp_launch*, const void*) -> bp_status {
      return BP_OK;
    };
    fake.devices[0].properties.dlpack_device_type = 2;
    fake.kernels = {&kernel};
    fake.graphs = &graphs.table;
    fake.load(r.registry, &plugin);
    target = r.target();
    bp_op_prepare(target, nullptr, 0, BP_OP_ADD, &call.args, nullptr, 0, &prepared);
    bp_block_allocate(target, nullptr, 4096, &block);
    bp_pool_create(target, nullptr, &pool);
    bp_capture_begin(target, nullptr, nullptr, &capture);
    bp_capture_end(capture, &graph);
    if (block != nullptr) wrap.ref = block->ref;
  }
  ~World() {
    bp_prepared_release(prepared);
    bp_block_free(block);
    bp_pool_destroy(pool);
    bp_captured_graph_destroy(graph);
  }
  bool is_whole() const {
    return target != nullptr && prepared != nullptr && block != nullptr && pool != nullptr &&
           graph != nullptr;
  }

  // Frees blocks that outlive the registry.
  struct LateBlocks : std::vector<bp_block*> {
    ~LateBlocks() {
      for (bp_block* late : *this) bp_block_free(late);
    }
  };

  bp_compile_desc compilation{};
  const bp_compile_desc* whole = nullptr;
  bp_decomposed_program* decomposed = nullptr;
  bp_kernel kernel = make_kernel("add.any");
  LateBlocks wrapped;
  FakeGraphs graphs;  // They outlive the registry, and so does the backend.
  FakeBackend fake;
  TestRegistry r;
  const bp_plugin* plugin = nullptr;
  const bp_target* target = nullptr;
  bp_prepared* prepared = nullptr;
  bp_block* block = nullptr;
  bp_pool* pool = nullptr;
  bp_capture* capture = nullptr;
  bp_captured_graph* graph = nullptr;
  AddCall call;

  // The results go here, and nothing looks at them.
  bp_registry* registry = nullptr;
  uint64_t number = 0;
  uint32_t count = 0;
  char text[64] = "";
  const bp_target* found = nullptr;
  const bp_process_group_ops* groups = nullptr;
  const bp_manifest* manifest = nullptr;
  bp_op_output outputs[4] = {};
  bp_kernel_choice choice{};
  const bp_foreign_tensor* foreign = nullptr;
  bp_prepared* other_prepared = nullptr;
  bp_block* other_block = nullptr;
  void* memory = nullptr;
  bp_dlpack_managed* managed = nullptr;
  bp_dlpack_unversioned* unversioned = nullptr;
  bp_dlpack_managed theirs{.version_major = 1};
  bp_dlpack_unversioned old_theirs{};
  bp_dispatch_statistics statistics{.struct_size = sizeof(statistics)};
  bp_cache_statistics cache{.struct_size = sizeof(cache)};
  bp_pool* other_pool = nullptr;
  bp_pool_desc pool_desc{.struct_size = sizeof(pool_desc), .struct_type = BP_STRUCT_POOL_DESC};
  bp_block_desc block_desc{.struct_size = sizeof(block_desc), .struct_type = BP_STRUCT_BLOCK_DESC};
  bp_tensor_copy_desc copy{
      .struct_size = sizeof(copy), .struct_type = BP_STRUCT_TENSOR_COPY_DESC, .next = nullptr};
  bp_block_wrap_desc wrap{.struct_size = sizeof(wrap), .struct_type = BP_STRUCT_BLOCK_WRAP_DESC};
  bp_capture_desc capture_desc{.struct_size = sizeof(capture_desc),
                               .struct_type = BP_STRUCT_CAPTURE_DESC};
  bp_captured_graph_info graph_info{.struct_size = sizeof(graph_info)};
  bp_prepared_info info{.struct_size = sizeof(info)};
  bp_dlpack_export_desc desc{.struct_size = sizeof(desc),
                             .struct_type = BP_STRUCT_DLPACK_EXPORT_DESC,
                             .next = nullptr,
                             .tensor = nullptr,
                             .flags = 0,
                             .release = nullptr,
                             .user_data = nullptr};
};

constexpr bp_status kRefused = BP_INVALID_ARGUMENT;

// The status that a function returns if `argument` is NULL and all other arguments are given.
struct Row {
  const char* function;
  const char* argument;
  bp_status expected;
  bp_status (*call)(World& w);
};

// Returns BP_OK if a function without a status returned nothing.
template <typename T>
bp_status nothing(T value) {
  return value == T{} ? BP_OK : BP_INTERNAL;
}

constexpr Row kRows[] = {
    {"bp_dtype_from_name", "name", BP_OK,
     [](World&) { return nothing(bp_dtype_from_name(nullptr)); }},
    {"bp_abi_version", "out_major", kRefused,
     [](World&) {
       uint32_t minor = 0;
       return bp_abi_version(nullptr, &minor);
     }},
    {"bp_abi_version", "out_minor", kRefused,
     [](World&) {
       uint32_t major = 0;
       return bp_abi_version(&major, nullptr);
     }},
    {"bp_dtype_add", "name", kRefused,
     [](World&) {
       bp_dtype dtype = 0;
       return bp_dtype_add(nullptr, 8, &dtype);
     }},
    {"bp_dtype_add", "out_dtype", kRefused,
     [](World&) { return bp_dtype_add("acme.f8", 8, nullptr); }},
    {"bp_op_from_name", "name", BP_OK, [](World&) { return nothing(bp_op_from_name(nullptr)); }},
    {"bp_op_describe", "out_desc", kRefused,
     [](World&) { return bp_op_describe(BP_OP_ADD, nullptr); }},
    {"bp_environment", "name", BP_OK, [](World&) { return nothing(bp_environment(nullptr)); }},

    {"bp_registry_create", "desc", BP_OK,
     [](World& w) {
       const bp_status status = bp_registry_create(nullptr, &w.registry);
       bp_registry_destroy(w.registry);
       return status;
     }},
    {"bp_registry_create", "out_registry", kRefused,
     [](World&) { return bp_registry_create(nullptr, nullptr); }},
    {"bp_registry_destroy", "registry", BP_OK, [](World&) { return bp_registry_destroy(nullptr); }},
    {"bp_registry_add_ops", "registry", kRefused,
     [](World&) { return bp_registry_add_ops(nullptr, 0, nullptr, 0, nullptr, nullptr); }},
    {"bp_registry_add_ops", "ops", kRefused,
     [](World& w) { return bp_registry_add_ops(w.r.registry, 1, nullptr, 0, nullptr, nullptr); }},
    {"bp_registry_add_ops", "out_ops", BP_OK,
     [](World& w) { return bp_registry_add_ops(w.r.registry, 0, nullptr, 0, nullptr, nullptr); }},
    {"bp_registry_add_ops", "out_results", BP_OK,
     [](World& w) { return bp_registry_add_ops(w.r.registry, 0, nullptr, 0, nullptr, nullptr); }},
    {"bp_registry_discover", "registry", kRefused,
     [](World& w) { return bp_registry_discover(nullptr, &w.number); }},
    {"bp_registry_discover", "out_count", BP_OK,
     [](World& w) { return bp_registry_discover(w.r.registry, nullptr); }},
    {"bp_registry_manifest", "registry", kRefused,
     [](World& w) { return bp_registry_manifest(nullptr, 0, &w.manifest); }},
    {"bp_registry_manifest", "out_manifest", kRefused,
     [](World& w) { return bp_registry_manifest(w.r.registry, 0, nullptr); }},
    {"bp_registry_load", "registry", kRefused,
     [](World&) { return bp_registry_load(nullptr, "npu", 0, nullptr, nullptr); }},
    {"bp_registry_load", "name", kRefused,
     [](World& w) { return bp_registry_load(w.r.registry, nullptr, 0, nullptr, nullptr); }},
    {"bp_registry_load", "options", kRefused,
     [](World& w) { return bp_registry_load(w.r.registry, "npu", 1, nullptr, nullptr); }},
    {"bp_registry_load", "out_plugin", BP_NOT_FOUND,
     [](World& w) { return bp_registry_load(w.r.registry, "/no.so", 0, nullptr, nullptr); }},
    {"bp_registry_unload", "registry", kRefused,
     [](World& w) { return bp_registry_unload(nullptr, w.plugin, UINT64_MAX); }},
    {"bp_registry_unload", "plugin", kRefused,
     [](World& w) { return bp_registry_unload(w.r.registry, nullptr, UINT64_MAX); }},
    {"bp_plugin_layer_reports", "plugin", kRefused,
     [](World& w) { return bp_plugin_layer_reports(nullptr, "leak", &w.number); }},
    {"bp_plugin_layer_reports", "layer", kRefused,
     [](World& w) { return bp_plugin_layer_reports(w.plugin, nullptr, &w.number); }},
    {"bp_plugin_layer_reports", "out_count", kRefused,
     [](World& w) { return bp_plugin_layer_reports(w.plugin, "leak", nullptr); }},
    {"bp_registry_plugin_count", "registry", BP_OK,
     [](World&) { return nothing(bp_registry_plugin_count(nullptr)); }},
    {"bp_registry_plugin", "registry", BP_OK,
     [](World&) { return nothing(bp_registry_plugin(nullptr, 0)); }},

    {"bp_registry_target_count", "registry", BP_OK,
     [](World&) { return nothing(bp_registry_target_count(nullptr)); }},
    {"bp_registry_target", "registry", BP_OK,
     [](World&) { return nothing(bp_registry_target(nullptr, 0)); }},
    {"bp_registry_find_target", "registry", kRefused,
     [](World& w) { return bp_registry_find_target(nullptr, "npu", &w.found); }},
    {"bp_registry_find_target", "name", kRefused,
     [](World& w) { return bp_registry_find_target(w.r.registry, nullptr, &w.found); }},
    {"bp_registry_find_target", "out_target", kRefused,
     [](World& w) { return bp_registry_find_target(w.r.registry, "npu", nullptr); }},

    {"bp_target_has_table", "target", BP_OK,
     [](World&) { return nothing(bp_target_has_table(nullptr, BP_STRUCT_DEVICE_OPS)); }},

    {"bp_op_infer", "args", kRefused,
     [](World& w) { return bp_op_infer(BP_OP_ADD, nullptr, 4, w.outputs, &w.count); }},
    {"bp_op_infer", "out_outputs", kRefused,
     [](World& w) { return bp_op_infer(BP_OP_ADD, &w.call.args, 4, nullptr, &w.count); }},
    {"bp_op_infer", "out_count", kRefused,
     [](World& w) { return bp_op_infer(BP_OP_ADD, &w.call.args, 4, w.outputs, nullptr); }},
    {"bp_op_check", "args", kRefused, [](World&) { return bp_op_check(BP_OP_ADD, nullptr); }},
    {"bp_op_is_valid", "args", BP_OK,
     [](World&) { return nothing(bp_op_is_valid(BP_OP_ADD, nullptr)); }},
    {"bp_op_check_buffers", "target", kRefused,
     [](World& w) { return bp_op_check_buffers(nullptr, BP_OP_ADD, &w.call.args); }},
    {"bp_op_check_buffers", "args", kRefused,
     [](World& w) { return bp_op_check_buffers(w.target, BP_OP_ADD, nullptr); }},
    {"bp_op_check_kernels", "target", kRefused,
     [](World& w) { return bp_op_check_kernels(nullptr, 0, 0, BP_OP_ADD, &w.call.args); }},
    {"bp_op_check_kernels", "args", kRefused,
     [](World& w) { return bp_op_check_kernels(w.target, 0, 0, BP_OP_ADD, nullptr); }},
    {"bp_kernel_find", "target", kRefused,
     [](World& w) { return bp_kernel_find(nullptr, 0, 0, BP_OP_ADD, &w.call.args, &w.choice); }},
    {"bp_kernel_find", "args", kRefused,
     [](World& w) { return bp_kernel_find(w.target, 0, 0, BP_OP_ADD, nullptr, &w.choice); }},
    {"bp_kernel_find", "out_choice", kRefused,
     [](World& w) { return bp_kernel_find(w.target, 0, 0, BP_OP_ADD, &w.call.args, nullptr); }},
    {"bp_kernel_explain", "target", kRefused,
     [](World& w) {
       return bp_kernel_explain(nullptr, 0, BP_OP_ADD, &w.call.args, 64, w.text, &w.number);
     }},
    {"bp_kernel_explain", "args", kRefused,
     [](World& w) {
       return bp_kernel_explain(w.target, 0, BP_OP_ADD, nullptr, 64, w.text, &w.number);
     }},
    {"bp_kernel_explain", "text", kRefused,
     [](World& w) {
       return bp_kernel_explain(w.target, 0, BP_OP_ADD, &w.call.args, 64, nullptr, &w.number);
     }},
    {"bp_kernel_explain", "out_size", kRefused,
     [](World& w) {
       return bp_kernel_explain(w.target, 0, BP_OP_ADD, &w.call.args, 64, w.text, nullptr);
     }},
    {"bp_op_launch", "target", kRefused,
     [](World& w) { return bp_op_launch(nullptr, nullptr, 0, BP_OP_ADD, &w.call.args); }},
    {"bp_op_launch", "stream", BP_OK,
     [](World& w) { return bp_op_launch(w.target, nullptr, 0, BP_OP_ADD, &w.call.args); }},
    {"bp_op_launch", "args", kRefused,
     [](World& w) { return bp_op_launch(w.target, nullptr, 0, BP_OP_ADD, nullptr); }},
    {"bp_kernel_launch", "target", kRefused,
     [](World& w) { return bp_kernel_launch(nullptr, nullptr, 0, &w.kernel, &w.call.args); }},
    {"bp_kernel_launch", "stream", BP_OK,
     [](World& w) { return bp_kernel_launch(w.target, nullptr, 0, &w.kernel, &w.call.args); }},
    {"bp_kernel_launch", "kernel", kRefused,
     [](World& w) { return bp_kernel_launch(w.target, nullptr, 0, nullptr, &w.call.args); }},
    {"bp_kernel_launch", "args", kRefused,
     [](World& w) { return bp_kernel_launch(w.target, nullptr, 0, &w.kernel, nullptr); }},
    {"bp_target_kernel_count", "target", BP_OK,
     [](World&) { return nothing(bp_target_kernel_count(nullptr)); }},
    {"bp_target_kernel", "target", BP_OK,
     [](World&) { return nothing(bp_target_kernel(nullptr, 0)); }},
    {"bp_target_process_groups_count", "target", BP_OK,
     [](World&) { return nothing(bp_target_process_groups_count(nullptr)); }},
    {"bp_target_process_groups", "target", BP_OK,
     [](World&) { return nothing(bp_target_process_groups(nullptr, 0)); }},
    {"bp_target_find_process_groups", "target", kRefused,
     [](World& w) { return bp_target_find_process_groups(nullptr, "local", &w.groups); }},
    {"bp_target_find_process_groups", "name", BP_OK,
     [](World& w) { return bp_target_find_process_groups(w.target, nullptr, &w.groups); }},
    {"bp_target_find_process_groups", "out_process_groups", kRefused,
     [](World& w) { return bp_target_find_process_groups(w.target, nullptr, nullptr); }},
    {"bp_kernel_op", "kernel", BP_OK, [](World&) { return nothing(bp_kernel_op(nullptr)); }},
    {"bp_target_statistics", "target", kRefused,
     [](World& w) { return bp_target_statistics(nullptr, BP_OP_ADD, &w.statistics); }},
    {"bp_target_statistics", "out_statistics", kRefused,
     [](World& w) { return bp_target_statistics(w.target, BP_OP_ADD, nullptr); }},
    {"bp_target_reason_count", "target", BP_OK,
     [](World&) { return nothing(bp_target_reason_count(nullptr)); }},
    {"bp_target_reason", "target", kRefused,
     [](World&) { return bp_target_reason(nullptr, 0, nullptr); }},
    {"bp_target_reason", "out_reason", kRefused,
     [](World& w) { return bp_target_reason(w.target, 0, nullptr); }},

    {"bp_op_prepare", "target", kRefused,
     [](World& w) {
       return bp_op_prepare(nullptr, nullptr, 0, BP_OP_ADD, &w.call.args, nullptr, 0,
                            &w.other_prepared);
     }},
    {"bp_op_prepare", "stream", BP_OK,
     [](World& w) {
       const bp_status status = bp_op_prepare(w.target, nullptr, 0, BP_OP_ADD, &w.call.args,
                                              nullptr, 0, &w.other_prepared);
       bp_prepared_release(w.other_prepared);
       return status;
     }},
    {"bp_op_prepare", "args", kRefused,
     [](World& w) {
       return bp_op_prepare(w.target, nullptr, 0, BP_OP_ADD, nullptr, nullptr, 0,
                            &w.other_prepared);
     }},
    {"bp_op_prepare", "constant_args", kRefused,
     [](World& w) {
       return bp_op_prepare(w.target, nullptr, 0, BP_OP_ADD, &w.call.args, nullptr, 1,
                            &w.other_prepared);
     }},
    {"bp_op_prepare", "out_prepared", kRefused,
     [](World& w) {
       return bp_op_prepare(w.target, nullptr, 0, BP_OP_ADD, &w.call.args, nullptr, 0, nullptr);
     }},
    {"bp_prepared_launch", "prepared", kRefused,
     [](World& w) { return bp_prepared_launch(nullptr, nullptr, &w.call.args); }},
    {"bp_prepared_launch", "stream", BP_OK,
     [](World& w) { return bp_prepared_launch(w.prepared, nullptr, &w.call.args); }},
    {"bp_prepared_launch", "args", kRefused,
     [](World& w) { return bp_prepared_launch(w.prepared, nullptr, nullptr); }},
    {"bp_prepared_get_info", "prepared", kRefused,
     [](World& w) { return bp_prepared_get_info(nullptr, &w.info); }},
    {"bp_prepared_get_info", "out_info", kRefused,
     [](World& w) { return bp_prepared_get_info(w.prepared, nullptr); }},
    {"bp_prepared_release", "prepared", BP_OK, [](World&) { return bp_prepared_release(nullptr); }},

    {"bp_block_allocate", "target", kRefused,
     [](World& w) { return bp_block_allocate(nullptr, nullptr, 1, &w.other_block); }},
    {"bp_block_allocate", "stream", BP_OK,
     [](World& w) {
       const bp_status status = bp_block_allocate(w.target, nullptr, 1, &w.other_block);
       bp_block_free(w.other_block);
       return status;
     }},
    {"bp_block_allocate", "out_block", kRefused,
     [](World& w) { return bp_block_allocate(w.target, nullptr, 1, nullptr); }},
    {"bp_block_free", "block", BP_OK, [](World&) { return bp_block_free(nullptr); }},
    {"bp_block_record_stream", "block", kRefused,
     [](World& w) { return bp_block_record_stream(nullptr, w.target->default_stream); }},
    {"bp_block_record_stream", "stream", kRefused,
     [](World& w) { return bp_block_record_stream(w.block, nullptr); }},
    {"bp_cache_get_statistics", "target", kRefused,
     [](World& w) { return bp_cache_get_statistics(nullptr, &w.cache); }},
    {"bp_cache_get_statistics", "out_statistics", kRefused,
     [](World& w) { return bp_cache_get_statistics(w.target, nullptr); }},
    {"bp_cache_empty", "target", kRefused, [](World&) { return bp_cache_empty(nullptr); }},

    {"bp_block_address", "block", kRefused,
     [](World& w) { return bp_block_address(nullptr, &w.number); }},
    {"bp_block_address", "out_address", kRefused,
     [](World& w) { return bp_block_address(w.block, nullptr); }},
    {"bp_target_find_block", "target", kRefused,
     [](World& w) { return bp_target_find_block(nullptr, 1, &w.other_block, &w.number); }},
    {"bp_target_find_block", "out_block", kRefused,
     [](World& w) { return bp_target_find_block(w.target, 1, nullptr, &w.number); }},
    {"bp_target_find_block", "out_byte_offset", kRefused,
     [](World& w) { return bp_target_find_block(w.target, 1, &w.other_block, nullptr); }},

    {"bp_pool_create", "target", kRefused,
     [](World& w) { return bp_pool_create(nullptr, &w.pool_desc, &w.other_pool); }},
    {"bp_pool_create", "desc", BP_OK,
     [](World& w) {
       const bp_status status = bp_pool_create(w.target, nullptr, &w.other_pool);
       bp_pool_destroy(w.other_pool);
       return status;
     }},
    {"bp_pool_create", "out_pool", kRefused,
     [](World& w) { return bp_pool_create(w.target, &w.pool_desc, nullptr); }},
    {"bp_pinned_allocate", "target", kRefused,
     [](World& w) { return bp_pinned_allocate(nullptr, 8, &w.memory); }},
    {"bp_pinned_allocate", "out_memory", kRefused,
     [](World& w) { return bp_pinned_allocate(w.target, 8, nullptr); }},
    {"bp_pinned_record_stream", "target", kRefused,
     [](World& w) { return bp_pinned_record_stream(nullptr, &w, w.target->default_stream); }},
    {"bp_pinned_record_stream", "memory", kRefused,
     [](World& w) { return bp_pinned_record_stream(w.target, nullptr, w.target->default_stream); }},
    {"bp_pinned_record_stream", "stream", kRefused,
     [](World& w) { return bp_pinned_record_stream(w.target, &w, nullptr); }},
    {"bp_pinned_free", "target", kRefused, [](World& w) { return bp_pinned_free(nullptr, &w); }},
    {"bp_pinned_free", "memory", BP_OK,
     [](World& w) { return bp_pinned_free(w.target, nullptr); }},
    {"bp_pinned_trim", "target", kRefused, [](World&) { return bp_pinned_trim(nullptr); }},
    {"bp_pinned_get_statistics", "target", kRefused,
     [](World& w) { return bp_pinned_get_statistics(nullptr, &w.cache); }},
    {"bp_pinned_get_statistics", "out_statistics", kRefused,
     [](World& w) { return bp_pinned_get_statistics(w.target, nullptr); }},
    {"bp_pool_trim", "pool", kRefused, [](World&) { return bp_pool_trim(nullptr); }},
    {"bp_pool_destroy", "pool", BP_OK, [](World&) { return bp_pool_destroy(nullptr); }},
    {"bp_pool_get_statistics", "pool", kRefused,
     [](World& w) { return bp_pool_get_statistics(nullptr, &w.cache); }},
    {"bp_pool_get_statistics", "out_statistics", kRefused,
     [](World& w) { return bp_pool_get_statistics(w.pool, nullptr); }},
    {"bp_block_allocate_with", "target", kRefused,
     [](World& w) {
       return bp_block_allocate_with(nullptr, nullptr, &w.block_desc, &w.other_block);
     }},
    {"bp_block_allocate_with", "stream", BP_OK,
     [](World& w) {
       const bp_status status =
           bp_block_allocate_with(w.target, nullptr, &w.block_desc, &w.other_block);
       bp_block_free(w.other_block);
       return status;
     }},
    {"bp_block_allocate_with", "desc", kRefused,
     [](World& w) { return bp_block_allocate_with(w.target, nullptr, nullptr, &w.other_block); }},
    {"bp_block_allocate_with", "out_block", kRefused,
     [](World& w) { return bp_block_allocate_with(w.target, nullptr, &w.block_desc, nullptr); }},
    {"bp_block_wrap", "target", kRefused,
     [](World& w) { return bp_block_wrap(nullptr, nullptr, &w.wrap, &w.other_block); }},
    {"bp_block_wrap", "stream", BP_OK,
     [](World& w) {
       bp_block* block = nullptr;
       const bp_status status = bp_block_wrap(w.target, nullptr, &w.wrap, &block);
       w.wrapped.push_back(block);  // The fake has no events, so the block ends after the unload.
       return status;
     }},
    {"bp_block_wrap", "desc", kRefused,
     [](World& w) { return bp_block_wrap(w.target, nullptr, nullptr, &w.other_block); }},
    {"bp_block_wrap", "out_block", kRefused,
     [](World& w) { return bp_block_wrap(w.target, nullptr, &w.wrap, nullptr); }},
    {"bp_memory_keep_history", "target", kRefused,
     [](World&) { return bp_memory_keep_history(nullptr, 0); }},
    {"bp_memory_snapshot", "target", kRefused,
     [](World& w) { return bp_memory_snapshot(nullptr, 64, w.text, &w.number); }},
    {"bp_memory_snapshot", "text", kRefused,
     [](World& w) { return bp_memory_snapshot(w.target, 64, nullptr, &w.number); }},
    {"bp_memory_snapshot", "out_size", kRefused,
     [](World& w) { return bp_memory_snapshot(w.target, 64, w.text, nullptr); }},

    {"bp_program_decompose", "target", kRefused,
     [](World& w) { return bp_program_decompose(nullptr, &w.compilation, &w.decomposed); }},
    {"bp_program_decompose", "desc", kRefused,
     [](World& w) { return bp_program_decompose(w.target, nullptr, &w.decomposed); }},
    {"bp_program_decompose", "out_program", kRefused,
     [](World& w) { return bp_program_decompose(w.target, &w.compilation, nullptr); }},
    {"bp_decomposed_program_desc", "program", kRefused,
     [](World& w) { return bp_decomposed_program_desc(nullptr, &w.whole); }},
    {"bp_decomposed_program_desc", "out_desc", kRefused,
     [](World& w) {
       return bp_decomposed_program_desc(reinterpret_cast<bp_decomposed_program*>(&w), nullptr);
     }},
    {"bp_decomposed_program_reason", "program", kRefused,
     [](World&) {
       const char* reason = nullptr;
       return bp_decomposed_program_reason(nullptr, 0, &reason);
     }},
    {"bp_decomposed_program_reason", "out_reason", kRefused,
     [](World& w) {
       return bp_decomposed_program_reason(reinterpret_cast<bp_decomposed_program*>(&w), 0,
                                           nullptr);
     }},
    {"bp_decomposed_program_release", "program", BP_OK,
     [](World&) { return bp_decomposed_program_release(nullptr); }},

    {"bp_capture_begin", "target", kRefused,
     [](World& w) { return bp_capture_begin(nullptr, nullptr, &w.capture_desc, &w.capture); }},
    {"bp_capture_begin", "stream", BP_OK,
     [](World& w) {
       const bp_status status = bp_capture_begin(w.target, nullptr, &w.capture_desc, &w.capture);
       return status == BP_OK ? bp_capture_end(w.capture, nullptr) : status;
     }},
    {"bp_capture_begin", "desc", BP_OK,
     [](World& w) {
       const bp_status status = bp_capture_begin(w.target, nullptr, nullptr, &w.capture);
       return status == BP_OK ? bp_capture_end(w.capture, nullptr) : status;
     }},
    {"bp_capture_begin", "out_capture", kRefused,
     [](World& w) { return bp_capture_begin(w.target, nullptr, &w.capture_desc, nullptr); }},
    {"bp_capture_begin_program", "target", kRefused,
     [](World& w) {
       return bp_capture_begin_program(nullptr, nullptr, &w.capture_desc, &w.capture);
     }},
    // The device has no compiler. captured_program_test.cpp gives NULL to one that has.
    {"bp_capture_begin_program", "stream", BP_UNSUPPORTED,
     [](World& w) {
       return bp_capture_begin_program(w.target, nullptr, &w.capture_desc, &w.capture);
     }},
    {"bp_capture_begin_program", "desc", BP_UNSUPPORTED,
     [](World& w) { return bp_capture_begin_program(w.target, nullptr, nullptr, &w.capture); }},
    {"bp_capture_begin_program", "out_capture", kRefused,
     [](World& w) {
       return bp_capture_begin_program(w.target, nullptr, &w.capture_desc, nullptr);
     }},
    {"bp_capture_end", "capture", kRefused,
     [](World& w) { return bp_capture_end(nullptr, &w.graph); }},
    {"bp_capture_end", "out_graph", BP_OK,
     [](World& w) {
       const bp_status status = bp_capture_begin(w.target, nullptr, nullptr, &w.capture);
       return status == BP_OK ? bp_capture_end(w.capture, nullptr) : status;
     }},
    {"bp_captured_graph_launch", "graph", kRefused,
     [](World&) { return bp_captured_graph_launch(nullptr, nullptr); }},
    {"bp_captured_graph_launch", "stream", BP_OK,
     [](World& w) { return bp_captured_graph_launch(w.graph, nullptr); }},
    {"bp_captured_graph_bind", "graph", kRefused,
     [](World& w) { return bp_captured_graph_bind(nullptr, 0, &w.block->ref); }},
    {"bp_captured_graph_bind", "range", kRefused,
     [](World& w) { return bp_captured_graph_bind(w.graph, 0, nullptr); }},
    {"bp_captured_graph_get_info", "graph", kRefused,
     [](World& w) { return bp_captured_graph_get_info(nullptr, &w.graph_info); }},
    {"bp_captured_graph_get_info", "out_info", kRefused,
     [](World& w) { return bp_captured_graph_get_info(w.graph, nullptr); }},
    {"bp_captured_graph_destroy", "graph", BP_OK,
     [](World&) { return bp_captured_graph_destroy(nullptr); }},

    {"bp_block_upload", "block", kRefused,
     [](World& w) { return bp_block_upload(nullptr, 0, w.text, 8, nullptr, nullptr, &w); }},
    {"bp_block_upload", "src", kRefused,
     [](World& w) { return bp_block_upload(w.block, 0, nullptr, 8, nullptr, nullptr, &w); }},
    {"bp_block_upload", "stream", BP_OK,
     [](World& w) { return bp_block_upload(w.block, 0, w.text, 8, nullptr, nullptr, &w); }},
    {"bp_block_upload", "release", BP_OK,
     [](World& w) { return bp_block_upload(w.block, 0, w.text, 8, nullptr, nullptr, &w); }},
    {"bp_block_upload", "user_data", BP_OK,
     [](World& w) { return bp_block_upload(w.block, 0, w.text, 8, nullptr, nullptr, nullptr); }},
    {"bp_block_download", "block", kRefused,
     [](World& w) { return bp_block_download(nullptr, 0, w.text, 8, nullptr, nullptr, &w); }},
    {"bp_block_download", "dst", kRefused,
     [](World& w) { return bp_block_download(w.block, 0, nullptr, 8, nullptr, nullptr, &w); }},
    {"bp_block_download", "stream", BP_OK,
     [](World& w) { return bp_block_download(w.block, 0, w.text, 8, nullptr, nullptr, &w); }},
    {"bp_block_download", "release", BP_OK,
     [](World& w) { return bp_block_download(w.block, 0, w.text, 8, nullptr, nullptr, &w); }},
    {"bp_block_download", "user_data", BP_OK,
     [](World& w) { return bp_block_download(w.block, 0, w.text, 8, nullptr, nullptr, nullptr); }},
    {"bp_copy_tensor", "desc", kRefused, [](World&) { return bp_copy_tensor(nullptr); }},

    {"bp_dlpack_find_target", "registry", kRefused,
     [](World& w) { return bp_dlpack_find_target(nullptr, {2, 0}, &w.found); }},
    {"bp_dlpack_find_target", "out_target", kRefused,
     [](World& w) { return bp_dlpack_find_target(w.r.registry, {2, 0}, nullptr); }},
    {"bp_dlpack_import", "target", kRefused,
     [](World& w) { return bp_dlpack_import(nullptr, &w.theirs, &w.foreign); }},
    {"bp_dlpack_import", "managed", kRefused,
     [](World& w) { return bp_dlpack_import(w.target, nullptr, &w.foreign); }},
    {"bp_dlpack_import", "out_tensor", kRefused,
     [](World& w) { return bp_dlpack_import(w.target, &w.theirs, nullptr); }},
    {"bp_dlpack_import_unversioned", "target", kRefused,
     [](World& w) { return bp_dlpack_import_unversioned(nullptr, &w.old_theirs, &w.foreign); }},
    {"bp_dlpack_import_unversioned", "managed", kRefused,
     [](World& w) { return bp_dlpack_import_unversioned(w.target, nullptr, &w.foreign); }},
    {"bp_dlpack_import_unversioned", "out_tensor", kRefused,
     [](World& w) { return bp_dlpack_import_unversioned(w.target, &w.old_theirs, nullptr); }},
    {"bp_foreign_tensor_release", "tensor", BP_OK,
     [](World&) { return bp_foreign_tensor_release(nullptr); }},
    {"bp_dlpack_export", "target", kRefused,
     [](World& w) { return bp_dlpack_export(nullptr, &w.desc, &w.managed); }},
    {"bp_dlpack_export", "desc", kRefused,
     [](World& w) { return bp_dlpack_export(w.target, nullptr, &w.managed); }},
    {"bp_dlpack_export", "out_managed", kRefused,
     [](World& w) { return bp_dlpack_export(w.target, &w.desc, nullptr); }},
    {"bp_dlpack_export_unversioned", "target", kRefused,
     [](World& w) { return bp_dlpack_export_unversioned(nullptr, &w.desc, &w.unversioned); }},
    {"bp_dlpack_export_unversioned", "desc", kRefused,
     [](World& w) { return bp_dlpack_export_unversioned(w.target, nullptr, &w.unversioned); }},
    {"bp_dlpack_export_unversioned", "out_managed", kRefused,
     [](World& w) { return bp_dlpack_export_unversioned(w.target, &w.desc, nullptr); }},
};

// Returns "function(argument)" for each pointer that a function of the public headers takes.
std::set<std::string> declared_pointers() {
  std::set<std::string> pointers;
  for (const char* name : {"host.h", "dlpack.h", "addresses.h", "blocks.h", "capture.h", "pinned.h",
                           "program.h", "transfers.h"}) {
    std::ifstream file(std::string(BP_TEST_HEADERS) + "/" + name);
    EXPECT_TRUE(file) << name;
    std::ostringstream read;
    read << file.rdbuf();
    const std::string text = read.str();
    const std::regex function(R"(\nBP_API\s[^;(]*?(bp_\w+)\(([^;]*)\);)");
    const std::regex pointer(R"(\*+\s*(\w+)\s*(,|$))");
    for (std::sregex_iterator f(text.begin(), text.end(), function), end; f != end; ++f) {
      const std::string parameters = (*f)[2];
      for (std::sregex_iterator p(parameters.begin(), parameters.end(), pointer); p != end; ++p) {
        pointers.insert((*f)[1].str() + "(" + (*p)[1].str() + ")");
      }
    }
  }
  return pointers;
}

TEST(HostArguments, HaveARowForEachPointerOfEachFunction) {
  std::set<std::string> rows;
  for (const Row& row : kRows) {
    EXPECT_TRUE(rows.insert(std::string(row.function) + "(" + row.argument + ")").second)
        << row.function << " has " << row.argument << " twice";
  }
  const std::set<std::string> declared = declared_pointers();
  EXPECT_GT(declared.size(), 80u);
  for (const std::string& name : declared) EXPECT_TRUE(rows.count(name)) << name << " has no row";
  for (const std::string& name : rows) EXPECT_TRUE(declared.count(name)) << name << " is of none";
}

TEST(HostArguments, RefuseNullByNameWhereTheyMustBeGiven) {
  World w;
  ASSERT_TRUE(w.is_whole()) << bp_error_text();
  for (const Row& row : kRows) {
    SCOPED_TRACE(std::string(row.function) + "(" + row.argument + ")");
    bp_error_clear();
    EXPECT_EQ(row.call(w), row.expected) << bp_error_text();
    if (row.expected != kRefused) continue;
    const std::string words = bp_error_text();
    EXPECT_TRUE(std::regex_search(words, std::regex("\\b" + std::string(row.argument) + "\\b")))
        << "the text does not name it: " << words;
  }
}

// ---- Structs ------------------------------------------------------------------------------------

// Bytes at the end of a page. The bytes behind them cannot be read.
class LastBytes {
 public:
  LastBytes(const void* bytes, size_t size)
      : page_(
            mmap(nullptr, kPage * 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    mprotect(static_cast<char*>(page_) + kPage, kPage, PROT_NONE);
    std::memcpy(static_cast<char*>(page_) + kPage - size, bytes, size);
    bytes_ = static_cast<char*>(page_) + kPage - size;
  }
  LastBytes(const LastBytes&) = delete;
  ~LastBytes() { munmap(page_, kPage * 2); }
  template <typename Struct>
  Struct* as() const {
    return reinterpret_cast<Struct*>(bytes_);
  }

 private:
  static constexpr size_t kPage = 65536;  // No machine has larger pages.
  void* page_;
  char* bytes_;
};

// A struct that the caller makes, and a function that reads it.
struct StructRow {
  const char* name;     // Its name in the text.
  uint32_t size_bytes;  // The size in the first release.
  std::vector<char> (*make)(World& w);
  bp_status (*call)(World& w, void* given);
  uint32_t struct_type = 0;  // 0: no function reads it.
};

template <typename Struct>
std::vector<char> bytes_of(const Struct& value) {
  const auto* bytes = reinterpret_cast<const char*>(&value);
  return {bytes, bytes + sizeof(value)};
}

std::vector<char> make_frame(World& w) { return bytes_of(w.call.args); }
constexpr uint32_t kFrame = sizeof(bp_add_args);

const StructRow kStructs[] = {
    {"bp_registry_desc", offsetof(bp_registry_desc, layers),
     [](World&) {
       bp_registry_desc desc{};
       desc.struct_type = BP_STRUCT_REGISTRY_DESC;
       return bytes_of(desc);
     },
     [](World& w, void* given) {
       const auto status =
           bp_registry_create(static_cast<const bp_registry_desc*>(given), &w.registry);
       if (status == BP_OK) bp_registry_destroy(w.registry);
       return status;
     },
     BP_STRUCT_REGISTRY_DESC},
    {"desc", sizeof(bp_dlpack_export_desc), [](World& w) { return bytes_of(w.desc); },
     [](World& w, void* given) {
       return bp_dlpack_export(w.target, static_cast<const bp_dlpack_export_desc*>(given),
                               &w.managed);
     },
     BP_STRUCT_DLPACK_EXPORT_DESC},
    {"desc", sizeof(bp_dlpack_export_desc), [](World& w) { return bytes_of(w.desc); },
     [](World& w, void* given) {
       return bp_dlpack_export_unversioned(
           w.target, static_cast<const bp_dlpack_export_desc*>(given), &w.unversioned);
     },
     BP_STRUCT_DLPACK_EXPORT_DESC},
    {"kernel", offsetof(bp_kernel, launch) + sizeof(void*),
     [](World& w) { return bytes_of(w.kernel); },
     [](World& w, void* given) {
       return bp_kernel_launch(w.target, nullptr, 0, static_cast<const bp_kernel*>(given),
                               &w.call.args);
     },
     BP_STRUCT_KERNEL},
    {"out_statistics", sizeof(bp_dispatch_statistics),
     [](World& w) { return bytes_of(w.statistics); },
     [](World& w, void* given) {
       return bp_target_statistics(w.target, 0, static_cast<bp_dispatch_statistics*>(given));
     }},
    {"out_statistics", sizeof(bp_cache_statistics), [](World& w) { return bytes_of(w.cache); },
     [](World& w, void* given) {
       return bp_cache_get_statistics(w.target, static_cast<bp_cache_statistics*>(given));
     }},
    {"out_statistics", sizeof(bp_cache_statistics), [](World& w) { return bytes_of(w.cache); },
     [](World& w, void* given) {
       return bp_pool_get_statistics(w.pool, static_cast<bp_cache_statistics*>(given));
     }},
    {"desc", sizeof(bp_pool_desc), [](World& w) { return bytes_of(w.pool_desc); },
     [](World& w, void* given) {
       return bp_pool_create(w.target, static_cast<const bp_pool_desc*>(given), &w.other_pool);
     },
     BP_STRUCT_POOL_DESC},
    {"desc", sizeof(bp_block_desc), [](World& w) { return bytes_of(w.block_desc); },
     [](World& w, void* given) {
       return bp_block_allocate_with(w.target, nullptr, static_cast<const bp_block_desc*>(given),
                                     &w.other_block);
     },
     BP_STRUCT_BLOCK_DESC},
    {"desc", sizeof(bp_block_wrap_desc), [](World& w) { return bytes_of(w.wrap); },
     [](World& w, void* given) {
       return bp_block_wrap(w.target, nullptr, static_cast<const bp_block_wrap_desc*>(given),
                            &w.other_block);
     },
     BP_STRUCT_BLOCK_WRAP_DESC},
    {"desc", sizeof(bp_tensor_copy_desc), [](World& w) { return bytes_of(w.copy); },
     [](World&, void* given) {
       return bp_copy_tensor(static_cast<const bp_tensor_copy_desc*>(given));
     },
     BP_STRUCT_TENSOR_COPY_DESC},
    {"desc", sizeof(bp_capture_desc), [](World& w) { return bytes_of(w.capture_desc); },
     [](World& w, void* given) {
       const bp_status status = bp_capture_begin(
           w.target, nullptr, static_cast<const bp_capture_desc*>(given), &w.capture);
       return status == BP_OK ? bp_capture_end(w.capture, nullptr) : status;
     },
     BP_STRUCT_CAPTURE_DESC},
    {"out_info", sizeof(bp_captured_graph_info), [](World& w) { return bytes_of(w.graph_info); },
     [](World& w, void* given) {
       return bp_captured_graph_get_info(w.graph, static_cast<bp_captured_graph_info*>(given));
     }},
    {"out_info", sizeof(bp_prepared_info), [](World& w) { return bytes_of(w.info); },
     [](World& w, void* given) {
       return bp_prepared_get_info(w.prepared, static_cast<bp_prepared_info*>(given));
     }},
    {"frame", kFrame, make_frame,
     [](World& w, void* given) { return bp_op_infer(BP_OP_ADD, given, 4, w.outputs, &w.count); }},
    {"frame", kFrame, make_frame,
     [](World&, void* given) { return bp_op_check(BP_OP_ADD, given); }},
    {"frame", kFrame, make_frame,
     [](World& w, void* given) { return bp_op_check_buffers(w.target, BP_OP_ADD, given); }},
    {"frame", kFrame, make_frame,
     [](World& w, void* given) { return bp_op_check_kernels(w.target, 0, 0, BP_OP_ADD, given); }},
    {"frame", kFrame, make_frame,
     [](World& w, void* given) {
       return bp_kernel_find(w.target, 0, 0, BP_OP_ADD, given, &w.choice);
     }},
    {"frame", kFrame, make_frame,
     [](World& w, void* given) {
       return bp_kernel_explain(w.target, 0, BP_OP_ADD, given, 64, w.text, &w.number);
     }},
    {"frame", kFrame, make_frame,
     [](World& w, void* given) { return bp_op_launch(w.target, nullptr, 0, BP_OP_ADD, given); }},
    {"frame", kFrame, make_frame,
     [](World& w, void* given) {
       return bp_kernel_launch(w.target, nullptr, 0, &w.kernel, given);
     }},
    {"frame", kFrame, make_frame,
     [](World& w, void* given) {
       return bp_op_prepare(w.target, nullptr, 0, BP_OP_ADD, given, nullptr, 0, &w.other_prepared);
     }},
    {"frame", kFrame, make_frame,
     [](World& w, void* given) { return bp_prepared_launch(w.prepared, nullptr, given); }},
};

TEST(HostArguments, RefuseStructsOfNoPossibleSizeByName) {
  World w;
  ASSERT_TRUE(w.is_whole()) << bp_error_text();
  for (const StructRow& row : kStructs) {
    for (const uint32_t size : {0u, 1u, row.size_bytes - 1, 65537u, UINT32_MAX}) {
      SCOPED_TRACE(std::string(row.name) + " " + std::to_string(&row - kStructs) + " of " +
                   std::to_string(size) + " bytes");
      const std::vector<char> bytes = row.make(w);
      const LastBytes given(bytes.data(), bytes.size());
      std::memcpy(given.as<char>(), &size, sizeof(size));
      bp_error_clear();
      EXPECT_EQ(row.call(w, given.as<void>()), BP_INCOMPATIBLE) << bp_error_text();
      EXPECT_NE(std::string(bp_error_text()).find(row.name), std::string::npos) << bp_error_text();
    }
  }
}

TEST(HostArguments, RefuseStructsOfAnotherTypeByName) {
  World w;
  ASSERT_TRUE(w.is_whole()) << bp_error_text();
  for (const StructRow& row : kStructs) {
    if (row.struct_type == 0) continue;
    std::vector<char> bytes = row.make(w);
    auto* const header = reinterpret_cast<bp_struct_header*>(bytes.data());
    header->struct_size = static_cast<uint32_t>(bytes.size());
    header->struct_type = row.struct_type + 1;
    bp_error_clear();
    EXPECT_NE(row.call(w, bytes.data()), BP_OK) << row.name;
    const std::string words = bp_error_text();
    EXPECT_NE(words.find(row.name), std::string::npos) << words;
    EXPECT_NE(words.find("struct_type"), std::string::npos) << words;
  }
}

TEST(HostArguments, RefuseAChainThatDoesNotEnd) {
  World w;
  ASSERT_TRUE(w.is_whole()) << bp_error_text();
  bp_struct_header first{sizeof(first), 0x01000001, nullptr};
  bp_struct_header second{sizeof(second), 0x01000002, &first};
  first.next = &second;
  std::vector<bp_struct_header> many(100'000, first);
  for (size_t i = 0; i + 1 < many.size(); ++i) many[i].next = &many[i + 1];
  many.back().next = nullptr;
  for (const StructRow& row : kStructs) {
    if (row.struct_type == 0 || row.struct_type == BP_STRUCT_KERNEL) continue;
    for (const bp_struct_header* next : {&first, many.data()}) {
      std::vector<char> bytes = row.make(w);
      auto* const header = reinterpret_cast<bp_struct_header*>(bytes.data());
      header->struct_size = static_cast<uint32_t>(bytes.size());
      header->next = next;
      bp_error_clear();
      EXPECT_EQ(row.call(w, bytes.data()), BP_INCOMPATIBLE) << row.name << bp_error_text();
      const std::string words = bp_error_text();
      EXPECT_NE(words.find(row.name), std::string::npos) << words;
      EXPECT_NE(words.find("links"), std::string::npos) << words;
    }
  }
}

TEST(HostArguments, RefuseATensorWithoutAShapeByName) {
  World w;
  ASSERT_TRUE(w.is_whole()) << bp_error_text();
  bp_tensor bad = *w.call.args.a;
  bp_add_args args = w.call.args;
  args.a = &bad;
  const auto expect = [&](bp_status status) {
    EXPECT_EQ(status, kRefused);
    EXPECT_NE(std::string(bp_error_text()).find("add: a "), std::string::npos) << bp_error_text();
    bp_error_clear();
  };
  for (const bool lacks_strides : {false, true}) {
    bad = *w.call.args.a;
    (lacks_strides ? bad.strides : bad.shape) = nullptr;
    expect(bp_op_check(BP_OP_ADD, &args));
    expect(bp_op_launch(w.target, nullptr, 0, BP_OP_ADD, &args));
    expect(bp_kernel_find(w.target, 0, 0, BP_OP_ADD, &args, &w.choice));
    expect(bp_op_prepare(w.target, nullptr, 0, BP_OP_ADD, &args, nullptr, 0, &w.other_prepared));
    expect(bp_prepared_launch(w.prepared, nullptr, &args));
  }
}

}  // namespace
}  // namespace bp::core
