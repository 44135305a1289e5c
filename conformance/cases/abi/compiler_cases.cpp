// Cases for api/include/backplane/compiler.h: programs of a few element-wise nodes over small
// integers, whose results are exact.
#include <algorithm>
#include <cstring>
#include <string>

#include "backplane/ops.h"
#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/fixtures/graph_fixtures.hpp"
#include "conformance/cases/fixtures/program_fixtures.hpp"

namespace bp::conformance {
namespace {

// Makes y = ((a + b) * a + b) * (a + b) through temporaries, one of which is written twice.
void make_chain(ProgramMaker& maker) {
  const uint32_t a = maker.add_value(BP_VALUE_INPUT), b = maker.add_value(BP_VALUE_INPUT),
                 y = maker.add_value(BP_VALUE_OUTPUT), sum = maker.add_value(BP_VALUE_TEMPORARY),
                 t1 = maker.add_value(BP_VALUE_TEMPORARY), t2 = maker.add_value(BP_VALUE_TEMPORARY);
  maker.add_node(BP_OP_ADD, a, b, sum);
  maker.add_node(BP_OP_MUL, sum, a, t1);
  maker.add_node(BP_OP_ADD, t1, b, t2);
  maker.add_node(BP_OP_MUL, t2, sum, t1);
  maker.add_node(BP_OP_MAXIMUM, t1, t1, y);
}

struct Chain {
  explicit Chain(Context& t) : a(random_floats(t, 1)), b(random_floats(t, 2)) { make_chain(maker); }

  bool is_right(const std::vector<uint8_t>& bytes) const {
    return holds_each(bytes, [&](size_t i) {
      const float x = float_at(a, i), y = float_at(b, i);
      return ((x + y) * x + y) * (x + y);
    });
  }

  ProgramMaker maker;
  const std::vector<uint8_t> a, b;
};

void nodes_run_in_order(Context& t) {
  Chain chain(t);
  const OwnedExecutable executable = compile_program(t, chain.maker);
  ProgramRunner runner(t, executable, {chain.a, chain.b});
  for (int i = 0; i < 2; ++i) {
    t.require_ok(runner.launch(), "launch");
    t.expect(chain.is_right(runner.output()), "the result of the program");
  }
}

void constants_belong_to_the_executable(Context& t) {
  ProgramMaker maker;
  const std::vector<uint8_t> a = random_floats(t, 1), c = random_floats(t, 3);
  std::vector<uint8_t> data = c;
  const uint32_t x = maker.add_value(BP_VALUE_INPUT),
                 k = maker.add_value(BP_VALUE_CONSTANT, data.data()),
                 y = maker.add_value(BP_VALUE_OUTPUT);
  maker.add_node(BP_OP_ADD, x, k, y);
  const OwnedExecutable executable = compile_program(t, maker);
  std::ranges::fill(data, uint8_t{0xFF});  // The compiler may read the program only during the
                                           // call.
  const bp_compiler_ops& compiler = compiler_table(t);
  bp_executable_info info{.struct_size = sizeof(info), .struct_type = BP_STRUCT_EXECUTABLE_INFO};
  t.require_ok(compiler.executable_info(compiler.self, executable.get(), &info), "executable_info");
  ProgramRunner runner(t, executable, {a});
  t.require_ok(runner.launch(), "launch");
  t.expect(holds_each(runner.output(), [&](size_t i) { return float_at(a, i) + float_at(c, i); }),
           "the result with a constant");
}

void formats_name_the_graph(Context& t) {
  const bp_compiler_ops& compiler = compiler_table(t);
  uint64_t count = 0;
  const char* const* names = nullptr;
  t.require_ok(compiler.formats(compiler.self, t.target().device, &count, &names), "formats");
  const bool is_there = std::any_of(names, names + count, [](const char* name) {
    return std::string_view(name) == "backplane.graph";
  });
  t.expect(is_there, "\"backplane.graph\" is a format");
  Chain chain(t);
  bp_compile_desc desc = chain.maker.desc();
  desc.format = "acme.unheard_of";
  bp_executable* executable = t.sentinel<bp_executable>();
  t.expect_refused(compiler.compile(compiler.self, t.target().device, &desc, &executable),
                   BP_UNSUPPORTED, "a format that formats() lacks");
  t.expect_eq(executable, t.sentinel<bp_executable>(), "out_executable after a failure");
}

// The compiler may refuse a node of this dtype: compile() must then refuse it too.
void query_tells_what_compiles(Context& t) {
  const bp_compiler_ops& compiler = compiler_table(t);
  Chain chain(t);
  compile_program(t, chain.maker);
  ProgramMaker odd;
  const uint32_t a = odd.add_value(BP_VALUE_INPUT, nullptr, BP_C128),
                 y = odd.add_value(BP_VALUE_OUTPUT, nullptr, BP_C128),
                 b = odd.add_value(BP_VALUE_INPUT), z = odd.add_value(BP_VALUE_OUTPUT);
  odd.add_node(BP_OP_ADD, b, b, z);
  odd.add_node(BP_OP_MAXIMUM, a, a, y);
  Partitioning seen = query_program(t, odd);
  t.expect(seen.reasons[0] == nullptr, "the first node is taken");
  bp_executable* executable = nullptr;
  const bp_status status =
      compiler.compile(compiler.self, t.target().device, &odd.desc(), &executable);
  if (seen.reasons[1] == nullptr) {
    t.require_ok(status, "compile of nodes that are all taken");
    t.require_ok(compiler.release(compiler.self, executable), "release");
  } else {
    t.expect_refused(status, BP_UNSUPPORTED, "compile of a node that query() refuses");
  }
  t.expect_refused(compiler.query(compiler.self, t.target().device, &odd.desc(), 1,
                                  seen.partitions.data(), seen.reasons.data(), &seen.count),
                   BP_INVALID_ARGUMENT, "query with too little room");
}

// Each node reads what the node before it wrote. If the compiler refuses one in the middle, those
// before and behind it are in different partitions.
void partitions_are_convex(Context& t) {
  constexpr uint32_t kOps[] = {BP_OP_ADD, BP_OP_MAXIMUM, BP_OP_ADD, BP_OP_MINIMUM, BP_OP_MUL};
  for (const bp_dtype dtype : {BP_C64, BP_C128, BP_BOOL, BP_F32}) {
    ProgramMaker maker;
    uint32_t from = maker.add_value(BP_VALUE_INPUT, nullptr, dtype);
    for (const uint32_t op : kOps) {
      const bool is_last = op == BP_OP_MUL;
      const uint32_t to =
          maker.add_value(is_last ? BP_VALUE_OUTPUT : BP_VALUE_TEMPORARY, nullptr, dtype);
      maker.add_node(op, from, from, to);
      from = to;
    }
    const std::vector<uint32_t> seen = query_program(t, maker).partitions;
    uint32_t last = BP_NO_PARTITION, least = 0;
    for (const uint32_t partition : seen) {
      if (partition == BP_NO_PARTITION) {
        least = last == BP_NO_PARTITION ? 0 : last + 1;
        continue;
      }
      t.expect(partition >= least, "the partition behind a refused node is a later one");
      t.expect(last == BP_NO_PARTITION || partition >= last, "partitions follow each other");
      last = partition;
    }
  }
}

void broken_programs_are_refused(Context& t) {
  const bp_compiler_ops& compiler = compiler_table(t);
  const auto refused = [&](ProgramMaker& maker, const char* what) {
    bp_executable* executable = nullptr;
    t.expect_refused(compiler.compile(compiler.self, t.target().device, &maker.desc(), &executable),
                     BP_INVALID_ARGUMENT, what);
  };
  ProgramMaker empty;
  empty.add_value(BP_VALUE_INPUT);
  refused(empty, "a program without nodes");
  ProgramMaker unwritten;
  const uint32_t x = unwritten.add_value(BP_VALUE_TEMPORARY),
                 y = unwritten.add_value(BP_VALUE_OUTPUT);
  unwritten.add_node(BP_OP_ADD, x, x, y);
  refused(unwritten, "a temporary that is read before it is written");
  ProgramMaker written;
  const uint32_t a = written.add_value(BP_VALUE_INPUT), b = written.add_value(BP_VALUE_INPUT);
  written.add_node(BP_OP_ADD, a, a, b);
  refused(written, "an input that is written");
  ProgramMaker roleless;
  const uint32_t c = roleless.add_value(BP_VALUE_INPUT), d = roleless.add_value(9);
  roleless.add_node(BP_OP_ADD, c, c, d);
  refused(roleless, "a value with an unknown role");
}

void frames_of_later_hosts_are_taken(Context& t) {
  const bp_compiler_ops& compiler = compiler_table(t);
  ProgramMaker longer;
  const std::vector<uint8_t> a = random_floats(t, 1), b = random_floats(t, 3);
  const uint32_t x = longer.add_value(BP_VALUE_INPUT), z = longer.add_value(BP_VALUE_INPUT),
                 y = longer.add_value(BP_VALUE_OUTPUT);
  longer.add_longer_node(BP_OP_ADD, x, z, y);
  const OwnedExecutable executable = compile_program(t, longer);
  ProgramRunner runner(t, executable, {a, b});
  t.require_ok(runner.launch(), "launch");
  t.expect(holds_each(runner.output(), [&](size_t i) { return float_at(a, i) + float_at(b, i); }),
           "the result of a frame that gives nothing more");
  ProgramMaker more;
  more.add_value(BP_VALUE_INPUT);
  more.add_value(BP_VALUE_INPUT);
  more.add_value(BP_VALUE_OUTPUT);
  more.add_longer_node(BP_OP_ADD, x, z, y, x);
  bp_executable* none = t.sentinel<bp_executable>();
  t.expect_refused(compiler.compile(compiler.self, t.target().device, &more.desc(), &none),
                   BP_UNSUPPORTED, "a frame that gives what the compiler does not know");
  t.expect_eq(none, t.sentinel<bp_executable>(), "out_executable after a failure");
}

void kernel_keeps_the_rules_of_kernels(Context& t) {
  Chain chain(t);
  const OwnedExecutable executable = compile_program(t, chain.maker);
  ProgramRunner runner(t, executable, {chain.a, chain.b});
  t.expect_eq(runner.kernel().op, 0u, "its op");
  t.expect(runner.kernel().name != nullptr, "its name");
  t.expect_eq(runner.kernel().args_size_bytes, uint32_t{sizeof(bp_program_args)}, "its frame");
  t.expect_refused(runner.launch(1u << 31), BP_UNSUPPORTED, "an unknown launch flag");
  bp_program_args frame = runner.args();
  --frame.tensor_count;
  t.expect_refused(runner.launch(frame), BP_INVALID_ARGUMENT, "a tensor too few");
  const int64_t other[] = {kProgramCount - 1};
  runner.tensors()[1].shape = other;
  t.expect_refused(runner.launch(), BP_INVALID_ARGUMENT, "a tensor of another shape");
  runner.tensors()[1].shape = kProgramShape;
  bp_struct_header link{sizeof(link), 0x7fff0000 | BP_STRUCT_MUST_UNDERSTAND, nullptr};
  runner.tensors()[1].next = &link;
  t.expect_refused(runner.launch(), BP_UNSUPPORTED, "a link that must be understood");
  t.expect(runner.output() == std::vector<uint8_t>(kProgramBytes, 0xFF),
           "refused launches leave the output alone");
  link.struct_type &= ~BP_STRUCT_MUST_UNDERSTAND;
  t.require_ok(runner.launch(), "launch");
  t.expect(chain.is_right(runner.output()), "the result");
}

void serialized_program_runs_again(Context& t) {
  const bp_compiler_ops& compiler = compiler_table(t);
  bp_device* const device = t.target().device;
  Chain chain(t);
  OwnedExecutable executable = compile_program(t, chain.maker);
  const std::vector<uint8_t> bytes = serialized(t, executable);
  const uint64_t size = bytes.size();
  executable.reset();
  bp_executable* out = nullptr;
  t.require_ok(compiler.deserialize(compiler.self, device, bytes.data(), size, nullptr, &out),
               "deserialize");
  const OwnedExecutable again(out, {&compiler});
  ProgramRunner runner(t, again, {chain.a, chain.b});
  t.require_ok(runner.launch(), "launch");
  t.expect(chain.is_right(runner.output()), "the result after deserialize");
  for (size_t k = 0; k < 16; ++k) {
    std::vector<uint8_t> damaged = bytes;
    damaged[k * (bytes.size() - 1) / 15] ^= 0x10;
    out = t.sentinel<bp_executable>();
    t.expect_refused(
        compiler.deserialize(compiler.self, device, damaged.data(), size, nullptr, &out),
        BP_INCOMPATIBLE, "bytes that were damaged");
    t.expect_eq(out, t.sentinel<bp_executable>(), "out_executable after a failure");
  }
  t.expect_refused(
      compiler.deserialize(compiler.self, device, bytes.data(), size / 2, nullptr, &out),
      BP_INCOMPATIBLE, "bytes that were cut");
}

void submitted_launches_outlive_the_executable(Context& t) {
  const bp_compiler_ops& compiler = compiler_table(t);
  t.expect_eq(compiler.release(compiler.self, nullptr), BP_OK, "release(NULL)");
  ProgramMaker maker;
  const std::vector<uint8_t> a = random_floats(t, 1), c = random_floats(t, 3);
  const uint32_t x = maker.add_value(BP_VALUE_INPUT),
                 k = maker.add_value(BP_VALUE_CONSTANT, c.data()),
                 y = maker.add_value(BP_VALUE_OUTPUT), s = maker.add_value(BP_VALUE_TEMPORARY);
  maker.add_node(BP_OP_ADD, x, k, s);
  maker.add_node(BP_OP_ADD, s, k, y);
  OwnedExecutable executable = compile_program(t, maker);
  ProgramRunner runner(t, executable, {a});
  Gate gate(t);
  gate.hold(runner.stream());
  t.require_ok(runner.launch(), "launch");
  executable.reset();
  // Memory that was freed too early would be given out again.
  const OwnedStream other = make_stream(t);
  for (int i = 0; i < 8; ++i) {
    const OwnedBuffer buffer = make_buffer(t, kProgramBytes);
    write(t, other.get(), range(buffer, 0, kProgramBytes),
          std::vector<uint8_t>(kProgramBytes, 0xFF));
  }
  gate.open();
  t.expect(holds_each(runner.output(),
                      [&](size_t i) { return float_at(a, i) + float_at(c, i) + float_at(c, i); }),
           "the result of a launch whose executable has ended");
}

void program_is_captured(Context& t) {
  compiler_table(t);
  graph_table(t);
  Chain chain(t);
  const OwnedExecutable executable = compile_program(t, chain.maker);
  ProgramRunner runner(t, executable, {chain.a, chain.b});
  if ((runner.kernel().flags & BP_KERNEL_CAPTURABLE) == 0) {
    t.not_supported("programs are not capturable");
  }
  Capturing capture(t, runner.stream());
  t.require_ok(runner.launch(), "launch in a capture");
  const OwnedInstance instance = instantiate(t, capture.end());
  t.expect(runner.output() == std::vector<uint8_t>(kProgramBytes, 0xFF), "nothing ran");
  replay(t, instance, runner.stream());
  t.expect(chain.is_right(runner.output()), "the result of the replay");
}

}  // namespace

void add_compiler_cases(std::vector<Case>& cases) {
  add_api_cases(
      cases, "compiler",
      {
          {"nodes_run_in_order", {"COMPILER-1"}, nodes_run_in_order},
          {"constants_belong_to_the_executable",
           {"COMPILER-1"},
           constants_belong_to_the_executable},
          {"formats_name_the_graph", {"COMPILER-2"}, formats_name_the_graph},
          {"query_tells_what_compiles", {"COMPILER-3"}, query_tells_what_compiles},
          {"partitions_are_convex", {"COMPILER-3"}, partitions_are_convex},
          {"broken_programs_are_refused", {"COMPILER-1", "ERROR-1"}, broken_programs_are_refused},
          {"frames_of_later_hosts_are_taken", {"COMPILER-7"}, frames_of_later_hosts_are_taken},
          {"kernel_keeps_the_rules_of_kernels",
           {"COMPILER-4", "LINK-2"},
           kernel_keeps_the_rules_of_kernels},
          {"serialized_program_runs_again", {"COMPILER-5"}, serialized_program_runs_again},
          {"submitted_launches_outlive_the_executable",
           {"COMPILER-6"},
           submitted_launches_outlive_the_executable},
          {"program_is_captured", {"GRAPH-8", "COMPILER-4"}, program_is_captured},
      });
}

}  // namespace bp::conformance
