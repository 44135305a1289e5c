// Calls of functions in the optional tables.
#include <array>
#include <memory>
#include <string>

#include "backplane/ops.h"
#include "conformance/cases/abi/abi_size_calls.hpp"
#include "conformance/cases/fixtures/external_handle.hpp"
#include "conformance/cases/fixtures/fixtures.hpp"
#include "conformance/cases/fixtures/program_fixtures.hpp"
#include "conformance/cases/fixtures/rank_group.hpp"
#include "conformance/cases/fixtures/semaphores.hpp"

namespace bp::conformance {
namespace {

void require_table(Context& t, uint32_t struct_type, const char* name) {
  if (bp_target_has_table(&t.target(), struct_type) == 0) {
    t.not_supported("the device has no table of " + std::string(name));
  }
}

template <typename Struct>
Struct blank(uint32_t struct_type) {
  Struct made{};
  made.struct_size = sizeof(Struct);
  made.struct_type = struct_type;
  return made;
}

// Returns a stream that lives as long as the call that holds it.
std::shared_ptr<bp_stream> shared_stream(Context& t) {
  OwnedStream stream = make_stream(t);
  const StreamEnd end = stream.get_deleter();
  return {stream.release(), end};
}

// Begins a capture with `desc` and abandons it.
bp_status capture(Context& t, bp_stream* stream, const bp_capture_desc* desc) {
  const bp_graph_ops& graphs = *t.target().graphs;
  const bp_status status = graphs.begin_capture(graphs.self, stream, desc);
  if (status != BP_OK) return status;
  t.require_ok(graphs.end_capture(graphs.self, stream, nullptr), "end_capture that abandons");
  return status;
}

}  // namespace

// ---- Graphs -------------------------------------------------------------------------------------

SizedCall make_bp_graph_ops_begin_capture(Context& t) {
  require_table(t, BP_STRUCT_GRAPH_OPS, "graphs");
  const std::shared_ptr<bp_stream> stream = shared_stream(t);
  return sized_call<bp_capture_desc>(
      blank<bp_capture_desc>(BP_STRUCT_CAPTURE_DESC),
      [&t, stream](bp_capture_desc* at) { return capture(t, stream.get(), at); });
}

SizedCall make_bp_graph_ops_capture_info(Context& t) {
  require_table(t, BP_STRUCT_GRAPH_OPS, "graphs");
  const std::shared_ptr<bp_stream> stream = shared_stream(t);
  const bp_graph_ops& graphs = *t.target().graphs;
  return sized_call<bp_capture_info>(blank<bp_capture_info>(BP_STRUCT_CAPTURE_INFO),
                                     [&graphs, stream](bp_capture_info* at) {
                                       return graphs.capture_info(graphs.self, stream.get(), at);
                                     });
}

// ---- Compilers ----------------------------------------------------------------------------------

namespace {

// A program for y = a + b with eight elements.
struct Program {
  static constexpr int64_t kShape[1] = {8};
  static constexpr int64_t kStrides[1] = {1};

  Program() {
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = blank<bp_program_value>(BP_STRUCT_PROGRAM_VALUE);
      values[i].shape = kShape;
      values[i].dtype = BP_F32;
      values[i].ndim = 1;
      values[i].role = i == 2 ? BP_VALUE_OUTPUT : BP_VALUE_INPUT;
      tensors[i].shape = kShape;
      tensors[i].strides = kStrides;
      tensors[i].ndim = 1;
      tensors[i].dtype = BP_F32;
    }
    args.struct_size = sizeof(args);
    args.a = &tensors[0];
    args.b = &tensors[1];
    args.y = &tensors[2];
    node = blank<bp_program_node>(BP_STRUCT_PROGRAM_NODE);
    node.args = &args;
    node.values = indices.data();
    node.value_count = indices.size();
    node.op = BP_OP_ADD;
    program = blank<bp_program>(BP_STRUCT_PROGRAM);
    program.values = values.data();
    program.value_count = values.size();
    program.value_stride_bytes = sizeof(bp_program_value);
    program.nodes = &node;
    program.node_count = 1;
    program.node_stride_bytes = sizeof(bp_program_node);
  }
  Program(const Program&) = delete;

  bp_compile_desc desc(const bp_program* of) const {
    bp_compile_desc d = blank<bp_compile_desc>(BP_STRUCT_COMPILE_DESC);
    d.format = "backplane.graph";
    d.data = of;
    d.size_bytes = sizeof(bp_program);
    return d;
  }

  std::array<bp_program_value, 3> values;
  std::array<bp_tensor, 3> tensors{};
  std::array<uint32_t, 3> indices{0, 1, 2};
  bp_add_args args{};
  bp_program_node node;
  bp_program program;
};

// Ends the executable that a call with this status made, or left alone.
void end_executable(Context& t, bp_status status, bp_executable* executable) {
  const bp_compiler_ops& compiler = *t.target().compiler;
  if (status == BP_OK) {
    t.expect_eq(compiler.release(compiler.self, executable), BP_OK, "release");
  } else {
    t.expect_eq(executable, t.sentinel<bp_executable>(), "out_executable after a failure");
  }
}

bp_status compile(Context& t, const bp_compile_desc* desc) {
  const bp_compiler_ops& compiler = *t.target().compiler;
  bp_executable* executable = t.sentinel<bp_executable>();
  const bp_status status = compiler.compile(compiler.self, t.target().device, desc, &executable);
  end_executable(t, status, executable);
  return status;
}

std::shared_ptr<Program> make_program(Context& t) {
  require_table(t, BP_STRUCT_COMPILER_OPS, "a compiler");
  return std::make_shared<Program>();
}

std::shared_ptr<bp_executable> compiled(Context& t, const Program& program) {
  const bp_compiler_ops& compiler = *t.target().compiler;
  const bp_compile_desc desc = program.desc(&program.program);
  bp_executable* made = nullptr;
  t.require_ok(compiler.compile(compiler.self, t.target().device, &desc, &made), "compile");
  return {made, [&compiler](bp_executable* e) { compiler.release(compiler.self, e); }};
}

// A program without values gives no constants.
bp_program no_constants() {
  bp_program constants = blank<bp_program>(BP_STRUCT_PROGRAM);
  constants.value_stride_bytes = sizeof(bp_program_value);
  constants.node_stride_bytes = sizeof(bp_program_node);
  return constants;
}

}  // namespace

SizedCall make_bp_compiler_ops_query(Context& t) {
  const auto p = make_program(t);
  const bp_compiler_ops& compiler = *t.target().compiler;
  return sized_call<bp_compile_desc>(p->desc(&p->program), [&t, &compiler, p](bp_compile_desc* at) {
    uint32_t partition = 0;
    bp_reason reason = nullptr;
    uint64_t count = 0;
    return compiler.query(compiler.self, t.target().device, at, 1, &partition, &reason, &count);
  });
}

SizedCall make_bp_compiler_ops_fingerprint(Context& t) {
  const auto p = make_program(t);
  const bp_compiler_ops& compiler = *t.target().compiler;
  return sized_call<bp_compile_desc>(p->desc(&p->program), [&t, &compiler, p](bp_compile_desc* at) {
    uint64_t words[2] = {};
    return compiler.fingerprint(compiler.self, t.target().device, at, words);
  });
}

SizedCall make_bp_compiler_ops_deserialize(Context& t) {
  const auto p = make_program(t);
  const bp_compiler_ops& compiler = *t.target().compiler;
  const bp_compile_desc desc = p->desc(&p->program);
  bp_executable* executable = nullptr;
  t.require_ok(compiler.compile(compiler.self, t.target().device, &desc, &executable), "compile");
  const OwnedExecutable made(executable, ExecutableEnd{&compiler});
  const auto bytes = std::make_shared<std::vector<uint8_t>>(serialized(t, made));
  return sized_call<bp_program>(no_constants(), [&t, &compiler, bytes](bp_program* at) {
    bp_executable* again = t.sentinel<bp_executable>();
    const bp_status status = compiler.deserialize(compiler.self, t.target().device, bytes->data(),
                                                  bytes->size(), at, &again);
    end_executable(t, status, again);
    return status;
  });
}

// load() reads the constants of an executable that is not loaded.
SizedCall make_bp_compiler_ops_load(Context& t) {
  const auto p = make_program(t);
  const bp_compiler_ops& compiler = *t.target().compiler;
  const auto executable = compiled(t, *p);
  return sized_call<bp_program>(no_constants(), [&t, &compiler, executable](bp_program* at) {
    const bp_status status = compiler.unload(compiler.self, executable.get());
    if (status == BP_UNSUPPORTED) t.not_supported(std::string("unload: ") + bp_error_text());
    t.require_ok(status, "unload");
    return compiler.load(compiler.self, executable.get(), at);
  });
}

SizedCall make_bp_compiler_ops_compile(Context& t) {
  const auto p = make_program(t);
  return sized_call<bp_compile_desc>(p->desc(&p->program),
                                     [&t, p](bp_compile_desc* at) { return compile(t, at); });
}

SizedCall make_bp_program(Context& t) {
  const auto p = make_program(t);
  return sized_call<bp_program>(p->program, [&t, p](bp_program* at) {
    bp_compile_desc desc = p->desc(at);
    desc.size_bytes = at->struct_size;
    return compile(t, &desc);
  });
}

SizedCall make_bp_program_node(Context& t) {
  const auto p = make_program(t);
  return sized_call<bp_program_node>(p->node, [&t, p](bp_program_node* at) {
    p->program.nodes = at;
    p->program.node_stride_bytes = std::max<uint64_t>(at->struct_size, sizeof(*at));
    const bp_compile_desc desc = p->desc(&p->program);
    return compile(t, &desc);
  });
}

// The extent is a formula that no shape names.
SizedCall make_bp_program_extent(Context& t) {
  const auto p = make_program(t);
  static constexpr int64_t kTerm[] = {1};
  bp_program_extent extent = blank<bp_program_extent>(BP_STRUCT_PROGRAM_EXTENT);
  extent.kind = BP_EXTENT_SUM;
  extent.terms = kTerm;
  extent.term_count = 1;
  return sized_call<bp_program_extent>(extent, [&t, p](bp_program_extent* at) {
    p->program.extents = at;
    p->program.extent_count = 1;
    p->program.extent_stride_bytes = std::max<uint64_t>(at->struct_size, sizeof(*at));
    const bp_compile_desc desc = p->desc(&p->program);
    return compile(t, &desc);
  });
}

// The call reads the last value; the others lie in front of it.
SizedCall make_bp_program_value(Context& t) {
  const auto p = make_program(t);
  return sized_call<bp_program_value>(p->values[2], [&t, p](bp_program_value* at) {
    constexpr uint64_t kStride = 256;
    std::byte* const first = reinterpret_cast<std::byte*>(at) - 2 * kStride;
    std::memcpy(first, &p->values[0], sizeof(bp_program_value));
    std::memcpy(first + kStride, &p->values[1], sizeof(bp_program_value));
    p->program.values = reinterpret_cast<const bp_program_value*>(first);
    p->program.value_stride_bytes = kStride;
    const bp_compile_desc desc = p->desc(&p->program);
    return compile(t, &desc);
  });
}

SizedCall make_bp_compiler_ops_executable_info(Context& t) {
  const auto p = make_program(t);
  const bp_compiler_ops& compiler = *t.target().compiler;
  const auto executable = compiled(t, *p);
  return sized_call<bp_executable_info>(blank<bp_executable_info>(BP_STRUCT_EXECUTABLE_INFO),
                                        [&compiler, executable](bp_executable_info* at) {
                                          return compiler.executable_info(compiler.self,
                                                                          executable.get(), at);
                                        });
}

// ---- Process groups -----------------------------------------------------------------------------

namespace {

// A group of only this device.
struct Alone {
  explicit Alone(Context& t) : device(t.target().device) {
    desc = blank<bp_process_group_desc>(BP_STRUCT_PROCESS_GROUP_DESC);
    desc.devices = &device;
    desc.ranks = &rank;
    desc.local_count = 1;
    desc.world_size = 1;
    desc.key_prefix = "size";
    desc.timeout_ns = kTimeoutNs;
  }
  Alone(const Alone&) = delete;

  bp_device* device;
  uint32_t rank = 0;
  bp_process_group_desc desc;
};

}  // namespace

SizedCall make_bp_process_group_ops_create(Context& t) {
  const bp_process_group_ops* const table = &require_groups(t);
  const auto alone = std::make_shared<Alone>(t);
  return sized_call<bp_process_group_desc>(
      alone->desc, [&t, table, alone](bp_process_group_desc* at) {
        const bp_process_group_ops& groups = *table;
        bp_process_group* group = t.sentinel<bp_process_group>();
        const bp_status status = groups.create(groups.self, at, &group);
        if (status == BP_OK) {
          t.expect_eq(groups.destroy(groups.self, group), BP_OK, "destroy");
        } else {
          t.expect_eq(group, t.sentinel<bp_process_group>(), "out_groups after a failure");
        }
        return status;
      });
}

SizedCall make_bp_process_group_ops_submit(Context& t) {
  const bp_process_group_ops& groups = require_groups(t);
  const Alone alone(t);
  bp_process_group* made = nullptr;
  t.require_ok(groups.create(groups.self, &alone.desc, &made), "create of a group of one");
  const std::shared_ptr<bp_process_group> group(
      made, [&groups](bp_process_group* g) { groups.destroy(groups.self, g); });
  const std::shared_ptr<bp_stream> stream = shared_stream(t);
  bp_collective_call call = blank<bp_collective_call>(BP_STRUCT_COLLECTIVE_CALL);
  call.group = group.get();
  call.stream = stream.get();
  call.kind = BP_COLLECTIVE_BARRIER;
  return sized_call<bp_collective_call>(call, [&t, &groups, group, stream](bp_collective_call* at) {
    const uint64_t stride_bytes = std::max<uint64_t>(at->struct_size, sizeof(*at));
    const bp_status status = groups.submit(groups.self, 1, at, stride_bytes);
    if (status == BP_OK) finish(t, stream.get());
    return status;
  });
}

// ---- Semaphores ---------------------------------------------------------------------------------

namespace {

std::shared_ptr<bp_semaphore> exportable_semaphore(Context& t) {
  OwnedSemaphore semaphore = make_semaphore(t, 0, BP_SEMAPHORE_EXPORTABLE);
  const SemaphoreEnd end = semaphore.get_deleter();
  return {semaphore.release(), end};
}

// Exports by the first type that is offered, to `out`.
bp_status export_to(Context& t, bp_semaphore* semaphore, bp_external_handle* out) {
  const bp_semaphore_ops& ops = *t.target().semaphores;
  bp_status status = BP_UNSUPPORTED;
  for (const bp_external_type type : kExternalTypes) {
    if (status == BP_UNSUPPORTED) status = ops.export_semaphore(ops.self, semaphore, type, out);
  }
  return status;
}

bp_status end_made(Context& t, bp_status status, bp_semaphore* made) {
  const bp_semaphore_ops& ops = *t.target().semaphores;
  if (status == BP_OK) {
    t.expect_eq(ops.destroy(ops.self, made), BP_OK, "destroy");
  } else {
    t.expect_eq(made, t.sentinel<bp_semaphore>(), "out_semaphore after a failure");
  }
  return status;
}

}  // namespace

SizedCall make_bp_semaphore_ops_create(Context& t) {
  const bp_semaphore_ops& ops = semaphore_table(t);
  return sized_call<bp_semaphore_desc>(semaphore_desc(7, 0), [&](bp_semaphore_desc* at) {
    bp_semaphore* made = t.sentinel<bp_semaphore>();
    const bp_status status = ops.create(ops.self, t.target().device, at, &made);
    return end_made(t, status, made);
  });
}

SizedCall make_bp_semaphore_ops_export_semaphore(Context& t) {
  const auto semaphore = exportable_semaphore(t);
  return sized_call<bp_external_handle>(blank_handle(), [&t, semaphore](bp_external_handle* at) {
    const bp_status status = export_to(t, semaphore.get(), at);
    if (status == BP_OK) close_descriptor(*at);
    return status;
  });
}

SizedCall make_bp_semaphore_ops_import_semaphore(Context& t) {
  const auto semaphore = exportable_semaphore(t);
  const auto owned = std::make_shared<Exported>();
  t.require_ok(export_to(t, semaphore.get(), &owned->handle), "export_semaphore");
  const bp_semaphore_ops& ops = *t.target().semaphores;
  return sized_call<bp_external_handle>(
      owned->handle, [&t, &ops, semaphore, owned](bp_external_handle* at) {
        bp_semaphore* made = t.sentinel<bp_semaphore>();
        const bp_status status = ops.import_semaphore(ops.self, t.target().device, at, &made);
        return end_made(t, status, made);
      });
}

// ---- Profilers ----------------------------------------------------------------------------------

SizedCall make_bp_profiler_ops_start(Context& t) {
  require_table(t, BP_STRUCT_PROFILER_OPS, "a profiler");
  const bp_profiler_ops& profiler = *t.target().profiler;
  bp_profile_desc desc = blank<bp_profile_desc>(BP_STRUCT_PROFILE_DESC);
  desc.sink = [](void*, const bp_activity*) {};
  return sized_call<bp_profile_desc>(desc, [&t, &profiler](bp_profile_desc* at) {
    const bp_status status = profiler.start(profiler.self, t.target().device, at);
    if (status == BP_OK) {
      t.require_ok(profiler.stop(profiler.self, t.target().device, UINT64_MAX), "profiler.stop");
    }
    return status;
  });
}

}  // namespace bp::conformance
