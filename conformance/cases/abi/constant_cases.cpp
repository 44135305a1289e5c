// Cases for constants of programs that have a key, or lie in buffers of the caller.
#include <cstring>
#include <string>

#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/fixtures/program_fixtures.hpp"

namespace bp::conformance {
namespace {

// y = a + k, with a constant k that has a key.
struct Weighted {
  explicit Weighted(const void* data, const char* key = "conformance.weights") {
    maker.add_node(BP_OP_ADD, a, k, y);
    maker.value(k).data = data;
    maker.value(k).key = key;
  }

  ProgramMaker maker;
  const uint32_t a = maker.add_value(BP_VALUE_INPUT), k = maker.add_value(BP_VALUE_CONSTANT),
                 y = maker.add_value(BP_VALUE_OUTPUT);
};

struct Data {
  explicit Data(Context& t) : a(random_floats(t, 1)), k(random_floats(t, 2)) {}

  // Launches the executable, and expects a + k.
  void expect_sum(Context& t, const OwnedExecutable& executable, const std::string& what) const {
    ProgramRunner runner(t, executable, {a});
    t.require_ok(runner.launch(), "launch");
    t.expect(holds_each(runner.output(), [&](size_t i) { return float_at(a, i) + float_at(k, i); }),
             what);
  }

  const std::vector<uint8_t> a, k;
};

std::string refusal_of(Context& t, Weighted& weighted, bp_status want, const std::string& what) {
  const bp_compiler_ops& compiler = compiler_table(t);
  bp_executable* executable = t.sentinel<bp_executable>();
  const bp_status status =
      compiler.compile(compiler.self, t.target().device, &weighted.maker.desc(), &executable);
  std::string text = bp_error_text();
  t.expect_refused(status, want, what);
  t.expect_eq(executable, t.sentinel<bp_executable>(), "out_executable after a failure");
  return text;
}

void constant_with_a_key_is_held_once(Context& t) {
  const bp_compiler_ops& compiler = compiler_table(t);
  const Data data(t);
  Weighted first(data.k.data()), second(nullptr);
  OwnedExecutable one = compile_program(t, first.maker);
  const OwnedExecutable two = compile_program(t, second.maker);
  bp_executable_info info{.struct_size = sizeof(info), .struct_type = BP_STRUCT_EXECUTABLE_INFO};
  t.require_ok(compiler.executable_info(compiler.self, two.get(), &info), "executable_info");
  t.expect(info.shared_constant_bytes >= kProgramBytes, "the bytes that executables share");
  data.expect_sum(t, one, "the result of the first executable");
  one.reset();
  data.expect_sum(t, two, "the result of an executable that was given the key alone");
}

void keys_that_nobody_holds_are_not_found(Context& t) {
  const Data data(t);
  Weighted first(data.k.data());
  OwnedExecutable one = compile_program(t, first.maker);
  Weighted unknown(nullptr, "conformance.no_such_key");
  const std::string text = refusal_of(t, unknown, BP_NOT_FOUND, "a key that nobody holds");
  t.expect(text.find("conformance.no_such_key") != std::string::npos, "the text names the key");
  Weighted shorter(data.k.data());
  const int64_t shape[] = {1, kProgramCount};
  shorter.maker.value(shorter.k).shape = shape;
  shorter.maker.value(shorter.k).ndim = 2;
  refusal_of(t, shorter, BP_INVALID_ARGUMENT, "a key of a constant of another shape");
  one.reset();
  Weighted ended(nullptr);
  refusal_of(t, ended, BP_NOT_FOUND, "a key whose executables have ended");
}

void constants_in_buffers_are_read_in_place(Context& t) {
  const Data data(t);
  const OwnedStream stream = make_stream(t);
  const OwnedBuffer buffer = make_buffer(t, kProgramBytes);
  const bp_buffer_ref range_of_buffer = range(buffer, 0, kProgramBytes);
  write(t, stream.get(), range_of_buffer, data.a);
  finish(t, stream.get());
  Weighted weighted(nullptr, nullptr);
  weighted.maker.value(weighted.k).buffer = range_of_buffer;
  const OwnedExecutable executable = compile_program(t, weighted.maker);
  bp_executable_info info{.struct_size = sizeof(info), .struct_type = BP_STRUCT_EXECUTABLE_INFO};
  const bp_compiler_ops& compiler = compiler_table(t);
  t.require_ok(compiler.executable_info(compiler.self, executable.get(), &info), "executable_info");
  t.expect_eq(info.shared_constant_bytes, uint64_t{0}, "shared bytes");
  ProgramRunner runner(t, executable, {data.a});
  t.require_ok(runner.launch(), "launch");
  t.expect(holds_each(runner.output(), [&](size_t i) { return 2 * float_at(data.a, i); }),
           "the result with a constant in a buffer");
}

void keys_stand_for_bytes_in_serialized_programs(Context& t) {
  const bp_compiler_ops& compiler = compiler_table(t);
  const Data data(t);
  Weighted weighted(data.k.data());
  OwnedExecutable executable = compile_program(t, weighted.maker);
  const std::vector<uint8_t> bytes = serialized(t, executable);
  executable.reset();
  const auto deserialize = [&](const bp_program* constants, bp_executable** out) {
    return compiler.deserialize(compiler.self, t.target().device, bytes.data(), bytes.size(),
                                constants, out);
  };
  bp_executable* out = t.sentinel<bp_executable>();
  t.expect_refused(deserialize(nullptr, &out), BP_NOT_FOUND, "a key whose constant is not given");
  t.expect_eq(out, t.sentinel<bp_executable>(), "out_executable after a failure");
  bp_program constants = *static_cast<const bp_program*>(weighted.maker.desc().data);
  constants.nodes = nullptr;
  constants.node_count = 0;
  t.require_ok(deserialize(&constants, &out), "deserialize with the constant");
  const OwnedExecutable again(out, {&compiler});
  data.expect_sum(t, again, "the result after deserialize");
}

}  // namespace

void add_constant_cases(std::vector<Case>& cases) {
  add_api_cases(
      cases, "compiler",
      {
          {"constant_with_a_key_is_held_once", {"COMPILER-12"}, constant_with_a_key_is_held_once},
          {"keys_that_nobody_holds_are_not_found",
           {"COMPILER-12"},
           keys_that_nobody_holds_are_not_found},
          {"constants_in_buffers_are_read_in_place",
           {"COMPILER-13"},
           constants_in_buffers_are_read_in_place},
          {"keys_stand_for_bytes_in_serialized_programs",
           {"COMPILER-14"},
           keys_stand_for_bytes_in_serialized_programs},
      });
}

}  // namespace bp::conformance
