// Cases for inputs and outputs of programs that are one memory.
#include <string>

#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/fixtures/program_fixtures.hpp"

namespace bp::conformance {
namespace {

// y = (a + b) + a, where y may be the memory of a. The second node reads a after y was written.
struct Update {
  explicit Update(Context& t) : a(random_floats(t, 1)), b(random_floats(t, 2)) {
    const uint32_t x = maker.add_value(BP_VALUE_INPUT), z = maker.add_value(BP_VALUE_INPUT),
                   y = maker.add_value(BP_VALUE_OUTPUT);
    maker.add_node(BP_OP_ADD, x, z, y);
    maker.add_node(BP_OP_ADD, y, x, y);
    alias = {x, y};
    compilation = maker.desc();
    program = *static_cast<const bp_program*>(compilation.data);
    program.aliases = &alias;
    program.alias_count = 1;
    compilation.data = &program;
  }

  OwnedExecutable compile(Context& t) {
    for (const bp_reason reason : query_program(t, maker).reasons) {
      if (reason != nullptr) t.not_supported(std::string("the compiler refuses a node: ") + reason);
    }
    return compile_taken(t, compilation);
  }
  bool is_right(const std::vector<uint8_t>& bytes) const {
    return holds_each(bytes, [&](size_t i) { return 2 * float_at(a, i) + float_at(b, i); });
  }

  ProgramMaker maker;
  const std::vector<uint8_t> a, b;
  bp_program_alias alias{};
  bp_program program{};
  bp_compile_desc compilation{};
};

void output_may_be_the_memory_of_its_input(Context& t) {
  Update update(t);
  const OwnedExecutable executable = update.compile(t);
  ProgramRunner runner(t, executable, {update.a, update.b});
  const bp_tensor own = runner.tensors()[2];
  t.require_ok(runner.launch(), "launch with separate memory");
  t.expect(update.is_right(runner.output()), "the result in separate memory");
  const bp_buffer_ref input{runner.tensors()[0].buffer, 0, kProgramBytes};
  t.expect(read(t, runner.stream(), input) == update.a, "the input in separate memory");
  runner.tensors()[2] = runner.tensors()[0];
  t.require_ok(runner.launch(), "launch with one memory");
  finish(t, runner.stream());
  t.expect(update.is_right(read(t, runner.stream(), input)), "the result in one memory");
  runner.tensors()[2] = own;
}

void sharing_without_an_alias_is_refused(Context& t) {
  Update update(t);
  const OwnedExecutable executable = update.compile(t);
  ProgramRunner runner(t, executable, {update.a, update.b});
  runner.tensors()[2] = runner.tensors()[1];
  t.expect_refused(runner.launch(), BP_INVALID_ARGUMENT,
                   "an output in the memory of an input that its alias does not name");
  runner.tensors()[1] = runner.tensors()[2] = runner.tensors()[0];
  t.expect_refused(runner.launch(), BP_INVALID_ARGUMENT,
                   "an output in the memory of two inputs, of which its alias names one");
}

void broken_aliases_are_refused(Context& t) {
  const bp_compiler_ops& compiler = compiler_table(t);
  Update update(t);
  const OwnedExecutable executable = update.compile(t);
  const auto refused = [&](bp_program_alias alias, const char* what) {
    update.alias = alias;
    bp_executable* out = t.sentinel<bp_executable>();
    t.expect_refused(compiler.compile(compiler.self, t.target().device, &update.compilation, &out),
                     BP_INVALID_ARGUMENT, what);
    t.expect_eq(out, t.sentinel<bp_executable>(), "out_executable after a failure");
  };
  refused({2, 2}, "an alias whose input is an output");
  refused({0, 1}, "an alias whose output is an input");
  refused({0, 1000}, "an alias of a value that the program lacks");
}

}  // namespace

void add_alias_cases(std::vector<Case>& cases) {
  add_api_cases(cases, "compiler",
                {
                    {"output_may_be_the_memory_of_its_input",
                     {"COMPILER-24"},
                     output_may_be_the_memory_of_its_input},
                    {"sharing_without_an_alias_is_refused",
                     {"COMPILER-25"},
                     sharing_without_an_alias_is_refused},
                    {"broken_aliases_are_refused", {"COMPILER-24"}, broken_aliases_are_refused},
                });
}

}  // namespace bp::conformance
