// Cases for compilers that describe devices, and for executables that leave the device.
#include <string>

#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/fixtures/graph_fixtures.hpp"
#include "conformance/cases/fixtures/program_fixtures.hpp"

namespace bp::conformance {
namespace {

// y = a + k, with a constant k that has a key.
struct Weighted {
  explicit Weighted(Context& t) : a(random_floats(t, 1)), k(random_floats(t, 2)) {
    maker.add_node(BP_OP_ADD, x, c, y);
    maker.value(c).data = k.data();
    maker.value(c).key = "conformance.residence";
  }

  const bp_program* program() { return static_cast<const bp_program*>(maker.desc().data); }
  bool is_right(const std::vector<uint8_t>& bytes) const {
    return holds_each(bytes, [&](size_t i) { return float_at(a, i) + float_at(k, i); });
  }

  ProgramMaker maker;
  const uint32_t x = maker.add_value(BP_VALUE_INPUT), c = maker.add_value(BP_VALUE_CONSTANT),
                 y = maker.add_value(BP_VALUE_OUTPUT);
  const std::vector<uint8_t> a, k;
};

bp_executable_info info_of(Context& t, const OwnedExecutable& executable) {
  const bp_compiler_ops& compiler = compiler_table(t);
  bp_executable_info info{.struct_size = sizeof(info), .struct_type = BP_STRUCT_EXECUTABLE_INFO};
  t.require_ok(compiler.executable_info(compiler.self, executable.get(), &info), "executable_info");
  return info;
}

bp_status unload(Context& t, const OwnedExecutable& executable) {
  const bp_compiler_ops& compiler = compiler_table(t);
  const bp_status status = compiler.unload(compiler.self, executable.get());
  return status;
}

// Unloads the executable. Ends the case as NotSupported if the compiler does not offer it.
void require_unloaded(Context& t, const OwnedExecutable& executable) {
  const bp_status status = unload(t, executable);
  if (status == BP_UNSUPPORTED) t.not_supported(std::string("unload: ") + bp_error_text());
  t.require_ok(status, "unload");
}

void unloaded_executables_hold_nothing(Context& t) {
  const bp_compiler_ops& compiler = compiler_table(t);
  Weighted weighted(t);
  const OwnedExecutable executable = compile_program(t, weighted.maker);
  t.expect_eq(info_of(t, executable).is_loaded, 1u, "is_loaded of a new executable");
  ProgramRunner runner(t, executable, {weighted.a});
  t.require_ok(runner.launch(), "launch");
  require_unloaded(t, executable);
  t.expect(weighted.is_right(runner.output()), "the result of a launch before unload()");
  const bp_executable_info info = info_of(t, executable);
  t.expect_eq(info.is_loaded, 0u, "is_loaded after unload()");
  t.expect_eq(info.constant_bytes + info.shared_constant_bytes, uint64_t{0},
              "the device memory after unload()");
  t.expect_eq(unload(t, executable), BP_OK, "a second unload()");
  t.expect_refused(runner.launch(), BP_UNSUPPORTED, "a launch of an unloaded executable");
  t.expect_refused(compiler.load(compiler.self, executable.get(), nullptr), BP_NOT_FOUND,
                   "a load() without the constant of a key");
  t.expect_eq(info_of(t, executable).is_loaded, 0u, "is_loaded after a load() that failed");
  t.require_ok(compiler.load(compiler.self, executable.get(), weighted.program()), "load");
  t.expect_eq(compiler.load(compiler.self, executable.get(), nullptr), BP_OK, "a second load()");
  t.require_ok(runner.launch(), "launch after load()");
  t.expect(weighted.is_right(runner.output()), "the result after load()");
}

void captured_executables_stay_loaded(Context& t) {
  compiler_table(t);
  graph_table(t);
  Weighted weighted(t);
  const OwnedExecutable executable = compile_program(t, weighted.maker);
  require_unloaded(t, executable);
  const bp_compiler_ops& compiler = compiler_table(t);
  t.require_ok(compiler.load(compiler.self, executable.get(), weighted.program()), "load");
  ProgramRunner runner(t, executable, {weighted.a});
  if ((runner.kernel().flags & BP_KERNEL_CAPTURABLE) == 0) {
    t.not_supported("programs are not capturable");
  }
  {
    Capturing capture(t, runner.stream());
    t.require_ok(runner.launch(), "launch in a capture");
    t.expect_refused(unload(t, executable), BP_UNSUPPORTED, "unload() during a capture");
    OwnedGraph graph = capture.end();
    const OwnedInstance instance = instantiate(t, graph);
    graph.reset();
    t.expect_refused(unload(t, executable), BP_UNSUPPORTED, "unload() beside an instance");
    replay(t, instance, runner.stream());
    t.expect(weighted.is_right(runner.output()), "the result of the replay");
  }
  t.expect_eq(unload(t, executable), BP_OK, "unload() after the instance has ended");
}

// Returns the description of the device. Ends the case as NotSupported if there is none.
std::vector<uint8_t> description_of(Context& t) {
  const bp_compiler_ops& compiler = compiler_table(t);
  uint64_t size = 0;
  const bp_status status = compiler.describe(compiler.self, t.target().device, 0, nullptr, &size);
  if (status == BP_UNSUPPORTED) t.not_supported(std::string("describe: ") + bp_error_text());
  t.require_ok(status, "describe");
  std::vector<uint8_t> bytes(size);
  t.require_ok(compiler.describe(compiler.self, t.target().device, size, bytes.data(), &size),
               "describe");
  return bytes;
}

void described_devices_are_compiled_for(Context& t) {
  const bp_compiler_ops& compiler = compiler_table(t);
  const std::vector<uint8_t> target = description_of(t);
  t.expect(description_of(t) == target, "two descriptions of a device are equal");
  Weighted weighted(t);
  compile_program(t, weighted.maker);
  weighted.maker.value(weighted.c).data = nullptr;
  bp_compile_desc desc = weighted.maker.desc();
  desc.target = target.data();
  desc.target_size_bytes = target.size();
  bp_executable* out = nullptr;
  t.require_ok(compiler.compile(compiler.self, nullptr, &desc, &out), "compile for a target");
  const OwnedExecutable elsewhere(out, {&compiler});
  t.expect_eq(info_of(t, elsewhere).is_loaded, 0u, "is_loaded of an executable for a target");
  const bp_kernel* kernel = nullptr;
  t.expect_refused(compiler.executable_kernel(compiler.self, elsewhere.get(), &kernel),
                   BP_UNSUPPORTED, "executable_kernel() of an executable for a target");
  const std::vector<uint8_t> bytes = serialized(t, elsewhere);
  weighted.maker.value(weighted.c).data = weighted.k.data();
  t.require_ok(compiler.deserialize(compiler.self, t.target().device, bytes.data(), bytes.size(),
                                    weighted.program(), &out),
               "deserialize on the described device");
  const OwnedExecutable here(out, {&compiler});
  ProgramRunner runner(t, here, {weighted.a});
  t.require_ok(runner.launch(), "launch");
  t.expect(weighted.is_right(runner.output()), "the result on the described device");
}

void damaged_descriptions_are_incompatible(Context& t) {
  const bp_compiler_ops& compiler = compiler_table(t);
  const std::vector<uint8_t> target = description_of(t);
  Weighted weighted(t);
  const auto refused = [&](const std::vector<uint8_t>& bytes, const char* what) {
    bp_compile_desc desc = weighted.maker.desc();
    desc.target = bytes.data();
    desc.target_size_bytes = bytes.size();
    bp_executable* out = t.sentinel<bp_executable>();
    t.expect_refused(compiler.compile(compiler.self, nullptr, &desc, &out), BP_INCOMPATIBLE, what);
    t.expect_eq(out, t.sentinel<bp_executable>(), "out_executable after a failure");
  };
  for (size_t k = 0; k < 16; ++k) {
    std::vector<uint8_t> damaged = target;
    damaged[k * (target.size() - 1) / 15] ^= 0x10;
    refused(damaged, "a description that was changed");
  }
  refused({target.begin(), target.begin() + static_cast<ptrdiff_t>(target.size() / 2)},
          "a description that was cut");
}

}  // namespace

void add_residence_cases(std::vector<Case>& cases) {
  add_api_cases(
      cases, "compiler",
      {
          {"unloaded_executables_hold_nothing", {"COMPILER-28"}, unloaded_executables_hold_nothing},
          {"captured_executables_stay_loaded", {"COMPILER-29"}, captured_executables_stay_loaded},
          {"described_devices_are_compiled_for",
           {"COMPILER-26"},
           described_devices_are_compiled_for},
          {"damaged_descriptions_are_incompatible",
           {"COMPILER-27"},
           damaged_descriptions_are_incompatible},
      });
}

}  // namespace bp::conformance
