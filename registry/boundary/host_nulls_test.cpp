// Tests what the functions of the public headers do if they get nothing but NULL and zeros, or
// structs whose pointers are NULL. host_arguments_test.cpp has each pointer on its own.
#include <gtest/gtest.h>

#include <algorithm>
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
#include "backplane/registry.hpp"
#include "backplane/transfers.h"
#include "registry/tests/fake_backend.hpp"

namespace bp::core {
namespace {

constexpr bp_status kRefused = BP_INVALID_ARGUMENT;

// Calls the function with zeros and NULLs alone. Returns BP_OK for a function without a status.
template <auto kFunction>
bp_status with_zeros() {
  return []<typename Result, typename... Arguments>(Result (*function)(Arguments...)) {
    if constexpr (std::is_same_v<Result, bp_status>) {
      return function(Arguments{}...);
    } else {
      function(Arguments{}...);
      return bp_status{BP_OK};
    }
  }(kFunction);
}

struct Row {
  const char* function;
  bp_status expected;
  bp_status (*call)();
};

constexpr Row kRows[] = {
    {"bp_error_text", BP_OK, with_zeros<bp_error_text>},
    {"bp_error_clear", BP_OK, with_zeros<bp_error_clear>},
    {"bp_status_name", BP_OK, with_zeros<bp_status_name>},
    {"bp_dtype_name", BP_OK, with_zeros<bp_dtype_name>},
    {"bp_dtype_from_name", BP_OK, with_zeros<bp_dtype_from_name>},
    {"bp_dtype_bits", BP_OK, with_zeros<bp_dtype_bits>},
    {"bp_dtype_add", kRefused, with_zeros<bp_dtype_add>},
    {"bp_op_name", BP_OK, with_zeros<bp_op_name>},
    {"bp_op_from_name", BP_OK, with_zeros<bp_op_from_name>},
    {"bp_decomposed_program_reason", kRefused, with_zeros<bp_decomposed_program_reason>},
    {"bp_op_next", BP_OK, with_zeros<bp_op_next>},
    {"bp_abi_version", kRefused, with_zeros<bp_abi_version>},
    {"bp_op_describe", kRefused, with_zeros<bp_op_describe>},
    {"bp_environment", BP_OK, with_zeros<bp_environment>},
    {"bp_registry_create", kRefused, with_zeros<bp_registry_create>},
    {"bp_registry_destroy", BP_OK, with_zeros<bp_registry_destroy>},
    {"bp_registry_discover", kRefused, with_zeros<bp_registry_discover>},
    {"bp_registry_manifest", kRefused, with_zeros<bp_registry_manifest>},
    {"bp_registry_load", kRefused, with_zeros<bp_registry_load>},
    {"bp_registry_unload", kRefused, with_zeros<bp_registry_unload>},
    {"bp_plugin_layer_reports", kRefused, with_zeros<bp_plugin_layer_reports>},
    {"bp_registry_add_ops", kRefused, with_zeros<bp_registry_add_ops>},
    {"bp_registry_plugin_count", BP_OK, with_zeros<bp_registry_plugin_count>},
    {"bp_registry_plugin", BP_OK, with_zeros<bp_registry_plugin>},
    {"bp_registry_target_count", BP_OK, with_zeros<bp_registry_target_count>},
    {"bp_registry_target", BP_OK, with_zeros<bp_registry_target>},
    {"bp_registry_find_target", kRefused, with_zeros<bp_registry_find_target>},
    {"bp_target_has_table", BP_OK, with_zeros<bp_target_has_table>},
    {"bp_target_process_groups_count", BP_OK, with_zeros<bp_target_process_groups_count>},
    {"bp_target_process_groups", BP_OK, with_zeros<bp_target_process_groups>},
    {"bp_target_find_process_groups", kRefused, with_zeros<bp_target_find_process_groups>},
    {"bp_op_infer", kRefused, with_zeros<bp_op_infer>},
    {"bp_op_check", kRefused, with_zeros<bp_op_check>},
    {"bp_op_is_valid", BP_OK, with_zeros<bp_op_is_valid>},
    {"bp_op_can_alias", BP_OK, with_zeros<bp_op_can_alias>},
    {"bp_op_check_buffers", kRefused, with_zeros<bp_op_check_buffers>},
    {"bp_op_check_kernels", kRefused, with_zeros<bp_op_check_kernels>},
    {"bp_kernel_find", kRefused, with_zeros<bp_kernel_find>},
    {"bp_kernel_explain", kRefused, with_zeros<bp_kernel_explain>},
    {"bp_op_launch", kRefused, with_zeros<bp_op_launch>},
    {"bp_kernel_launch", kRefused, with_zeros<bp_kernel_launch>},
    {"bp_target_kernel_count", BP_OK, with_zeros<bp_target_kernel_count>},
    {"bp_target_kernel", BP_OK, with_zeros<bp_target_kernel>},
    {"bp_kernel_op", BP_OK, with_zeros<bp_kernel_op>},
    {"bp_target_statistics", kRefused, with_zeros<bp_target_statistics>},
    {"bp_target_reason_count", BP_OK, with_zeros<bp_target_reason_count>},
    {"bp_target_reason", kRefused, with_zeros<bp_target_reason>},
    {"bp_op_prepare", kRefused, with_zeros<bp_op_prepare>},
    {"bp_prepared_launch", kRefused, with_zeros<bp_prepared_launch>},
    {"bp_prepared_get_info", kRefused, with_zeros<bp_prepared_get_info>},
    {"bp_prepared_release", BP_OK, with_zeros<bp_prepared_release>},
    {"bp_block_allocate", kRefused, with_zeros<bp_block_allocate>},
    {"bp_block_free", BP_OK, with_zeros<bp_block_free>},
    {"bp_block_record_stream", kRefused, with_zeros<bp_block_record_stream>},
    {"bp_cache_get_statistics", kRefused, with_zeros<bp_cache_get_statistics>},
    {"bp_cache_empty", kRefused, with_zeros<bp_cache_empty>},
    {"bp_block_address", kRefused, with_zeros<bp_block_address>},
    {"bp_target_find_block", kRefused, with_zeros<bp_target_find_block>},
    {"bp_pool_create", kRefused, with_zeros<bp_pool_create>},
    {"bp_pool_trim", kRefused, with_zeros<bp_pool_trim>},
    {"bp_pool_destroy", BP_OK, with_zeros<bp_pool_destroy>},
    {"bp_pool_get_statistics", kRefused, with_zeros<bp_pool_get_statistics>},
    {"bp_block_allocate_with", kRefused, with_zeros<bp_block_allocate_with>},
    {"bp_block_wrap", kRefused, with_zeros<bp_block_wrap>},
    {"bp_memory_keep_history", kRefused, with_zeros<bp_memory_keep_history>},
    {"bp_memory_snapshot", kRefused, with_zeros<bp_memory_snapshot>},
    {"bp_pinned_allocate", kRefused, with_zeros<bp_pinned_allocate>},
    {"bp_pinned_record_stream", kRefused, with_zeros<bp_pinned_record_stream>},
    {"bp_pinned_free", BP_OK, with_zeros<bp_pinned_free>},
    {"bp_pinned_trim", kRefused, with_zeros<bp_pinned_trim>},
    {"bp_pinned_get_statistics", kRefused, with_zeros<bp_pinned_get_statistics>},
    {"bp_capture_begin", kRefused, with_zeros<bp_capture_begin>},
    {"bp_capture_begin_program", kRefused, with_zeros<bp_capture_begin_program>},
    {"bp_capture_end", kRefused, with_zeros<bp_capture_end>},
    {"bp_captured_graph_launch", kRefused, with_zeros<bp_captured_graph_launch>},
    {"bp_captured_graph_bind", kRefused, with_zeros<bp_captured_graph_bind>},
    {"bp_captured_graph_get_info", kRefused, with_zeros<bp_captured_graph_get_info>},
    {"bp_captured_graph_destroy", BP_OK, with_zeros<bp_captured_graph_destroy>},
    {"bp_program_decompose", kRefused, with_zeros<bp_program_decompose>},
    {"bp_decomposed_program_desc", kRefused, with_zeros<bp_decomposed_program_desc>},
    {"bp_decomposed_program_release", BP_OK, with_zeros<bp_decomposed_program_release>},
    {"bp_block_upload", kRefused, with_zeros<bp_block_upload>},
    {"bp_block_download", kRefused, with_zeros<bp_block_download>},
    {"bp_copy_tensor", kRefused, with_zeros<bp_copy_tensor>},
    {"bp_dlpack_find_target", kRefused, with_zeros<bp_dlpack_find_target>},
    {"bp_dlpack_import", kRefused, with_zeros<bp_dlpack_import>},
    {"bp_dlpack_import_unversioned", kRefused, with_zeros<bp_dlpack_import_unversioned>},
    {"bp_foreign_tensor_release", BP_OK, with_zeros<bp_foreign_tensor_release>},
    {"bp_dlpack_export", kRefused, with_zeros<bp_dlpack_export>},
    {"bp_dlpack_export_unversioned", kRefused, with_zeros<bp_dlpack_export_unversioned>},
};

TEST(HostNulls, HaveARowForEachFunction) {
  std::set<std::string> rows, declared;
  for (const Row& row : kRows) EXPECT_TRUE(rows.insert(row.function).second) << row.function;
  for (const char* name : {"host.h", "dlpack.h", "addresses.h", "blocks.h", "capture.h", "pinned.h",
                           "program.h", "transfers.h"}) {
    std::ifstream file(std::string(BP_TEST_HEADERS) + "/" + name);
    std::ostringstream read;
    read << file.rdbuf();
    const std::string text = read.str();
    const std::regex function(R"(\nBP_API\s[^;(]*?(bp_\w+)\()");
    for (std::sregex_iterator f(text.begin(), text.end(), function), end; f != end; ++f) {
      declared.insert((*f)[1]);
    }
  }
  EXPECT_EQ(rows, declared);
}

TEST(HostNulls, RefuseAllArgumentsAsZerosOrDoNothing) {
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.function);
    bp_error_clear();
    EXPECT_EQ(row.call(), row.expected) << bp_error_text();
    EXPECT_EQ(*bp_error_text() == '\0', row.expected == BP_OK);
  }
}

TEST(HostNulls, RefuseOptionsWithoutAKeyAndTakeThoseWithoutAValue) {
  TestRegistry r;
  bp_option option{};
  EXPECT_EQ(bp_registry_load(r.registry, "/no.so", 1, &option, nullptr), kRefused);
  EXPECT_NE(std::string(bp_error_text()).find("key"), std::string::npos) << bp_error_text();
  option.key = "threads";
  EXPECT_EQ(bp_registry_load(r.registry, "/no.so", 1, &option, nullptr), BP_NOT_FOUND);
}

TEST(HostNulls, RefuseAKernelThatIsZeroBehindItsHeader) {
  FakeBackend fake;
  TestRegistry r;
  ASSERT_EQ(fake.load(r.registry), BP_OK);
  AddCall call;
  bp_kernel kernel{};
  kernel.struct_size = sizeof(kernel);
  kernel.struct_type = BP_STRUCT_KERNEL;
  const auto launch = [&] { return bp_kernel_launch(r.target(), nullptr, 0, &kernel, &call.args); };
  EXPECT_EQ(launch(), kRefused);
  kernel.launch = make_kernel("").launch;
  kernel.op = BP_OP_ADD;
  EXPECT_EQ(launch(), kRefused) << "it has no name";
  kernel.name = "add.any";
  EXPECT_EQ(launch(), BP_UNSUPPORTED) << "it was written for a frame of 0 bytes";
  kernel.args_size_bytes = sizeof(bp_add_args);
  EXPECT_EQ(launch(), BP_OK) << bp_error_text();
}

// ---- Frames -------------------------------------------------------------------------------------

struct Argument {
  uint32_t op;
  size_t offset;
  Kind kind;
};

enum Op : uint32_t {
#define BP_OP(id, name, since, profile, core_or_decomposable, numerics) op_##name = (id),
#define BP_ARG(op, member, kind, dtype_rule)
#include "backplane/ops.def"
#undef BP_OP
#undef BP_ARG
};

constexpr Argument kArguments[] = {
#define BP_OP(id, name, since, profile, core_or_decomposable, numerics)
#define BP_ARG(op, member, kind, dtype_rule) \
  {op_##op, offsetof(bp_##op##_args, member), Kind::kind},
#include "backplane/ops.def"
#undef BP_OP
#undef BP_ARG
};

bool is_list(Kind kind) {
  return kind == Kind::tensor_list || kind == Kind::out_list || kind == Kind::inout_list ||
         kind == Kind::i64_list;
}
bool is_tensor(Kind kind) {
  return kind == Kind::tensor || kind == Kind::out || kind == Kind::inout;
}

// Returns a frame that is zero behind its size, except that the tensors that must be given are
// `tensor`, and each list has two members at NULL if `lists_have_members`.
std::vector<char> frame_of(const OpRow& row, const bp_tensor* tensor, bool lists_have_members) {
  std::vector<char> frame(row.frame_size_bytes);
  const auto put = [&](size_t offset, const auto& value) {
    // NOLINTNEXTLINE(bugprone-sizeof-expression): the value may be a pointer.
    std::memcpy(frame.data() + offset, &value, sizeof(value));
  };
  put(0, row.frame_size_bytes);
  for (const Argument& argument : kArguments) {
    if (argument.op != row.op) continue;
    if (is_tensor(argument.kind)) put(argument.offset, tensor);
    if (is_list(argument.kind) && lists_have_members) put(argument.offset - 8, uint64_t{2});
  }
  return frame;
}

bool has_list(const OpRow& row) {
  return std::ranges::any_of(kArguments,
                             [&](const Argument& a) { return a.op == row.op && is_list(a.kind); });
}

TEST(HostNulls, RefuseFramesWithoutTensorsOrLists) {
  FakeBackend fake;
  TestRegistry r;
  ASSERT_EQ(fake.load(r.registry), BP_OK);
  AddCall call;
  for (const OpRow& row : op_rows()) {
    for (const bool has_tensors : {false, true}) {
      for (const bool lists_have_members : {false, true}) {
        SCOPED_TRACE(row.name + std::string(has_tensors ? ", tensors" : "") +
                     (lists_have_members ? ", lists" : ""));
        const std::vector<char> frame =
            frame_of(row, has_tensors ? &call.a : nullptr, lists_have_members);
        const bool is_whole = has_tensors && !(lists_have_members && has_list(row));
        const auto expect = [&](bp_status status) {
          EXPECT_TRUE(is_whole || status != BP_OK);
          EXPECT_EQ(*bp_error_text() == '\0', status == BP_OK) << bp_error_text();
          bp_error_clear();
        };
        bp_op_output outputs[8];
        uint32_t count = 0;
        bp_kernel_choice choice;
        char text[256];
        uint64_t size = 0;
        bp_prepared* prepared = nullptr;
        bp_kernel kernel = make_kernel("any", row.op, row.frame_size_bytes);
        static_cast<void>(bp_op_infer(row.op, frame.data(), 8, outputs, &count));
        expect(bp_op_check(row.op, frame.data()));
        expect(bp_op_check_buffers(r.target(), row.op, frame.data()));
        expect(bp_op_check_kernels(r.target(), 0, 0, row.op, frame.data()));
        expect(bp_kernel_find(r.target(), 0, 0, row.op, frame.data(), &choice));
        static_cast<void>(
            bp_kernel_explain(r.target(), 0, row.op, frame.data(), sizeof(text), text, &size));
        expect(bp_op_launch(r.target(), nullptr, 0, row.op, frame.data()));
        expect(bp_kernel_launch(r.target(), nullptr, 0, &kernel, frame.data()));
        expect(bp_op_prepare(r.target(), nullptr, 0, row.op, frame.data(), nullptr, 0, &prepared));
        bp_prepared_release(prepared);
        prepared = nullptr;
      }
    }
  }
}

// ---- The inline functions of registry.hpp -------------------------------------------------------

TEST(HostNulls, InlineFunctionsRefuseNull) {
  FakeBackend fake;
  TestRegistry r;
  ASSERT_EQ(fake.load(r.registry), BP_OK);
  const bp_target& target = *r.target();
  AddCall call;
  EXPECT_EQ(bp::allocate(target, nullptr, 64, nullptr).code, kRefused);
  EXPECT_EQ(bp::allocate(target, nullptr, bp_block_desc{}, nullptr).code, kRefused);
  EXPECT_EQ(bp::create_pool(target, nullptr, nullptr).code, kRefused);
  EXPECT_EQ(bp::memory_snapshot(target).substr(0, 1), "{");
  EXPECT_EQ(bp::create_stream(target, nullptr, nullptr).code, kRefused);
  EXPECT_EQ(bp::create_event(target, nullptr, nullptr).code, kRefused);
  EXPECT_NE(bp::explain(target, 0, BP_OP_ADD, nullptr), "");
  const bp::Registry registry(nullptr);
  EXPECT_EQ(registry.find_target("npu", nullptr).code, kRefused);
}

}  // namespace
}  // namespace bp::core
