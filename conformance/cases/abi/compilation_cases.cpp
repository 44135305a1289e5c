// Cases for what a host asks of a compilation: options, and to stop.
#include <algorithm>
#include <string>
#include <thread>

#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/fixtures/program_fixtures.hpp"

namespace bp::conformance {
namespace {

constexpr uint32_t kNodeCount = 4;

// y = a + a + ... through temporaries, one for each node but the last.
void make_sums(ProgramMaker& maker) {
  const uint32_t a = maker.add_value(BP_VALUE_INPUT);
  uint32_t from = a;
  for (uint32_t i = 0; i < kNodeCount; ++i) {
    const uint32_t to = maker.add_value(i + 1 < kNodeCount ? BP_VALUE_TEMPORARY : BP_VALUE_OUTPUT);
    maker.add_node(BP_OP_ADD, from, a, to);
    from = to;
  }
}

bp_status compile(Context& t, const bp_compile_desc& desc, bp_executable** out_executable) {
  const bp_compiler_ops& compiler = compiler_table(t);
  return compiler.compile(compiler.self, t.target().device, &desc, out_executable);
}

// Returns the text of the refusal.
std::string refusal_of(Context& t, const bp_compile_desc& desc, bp_status want,
                       const std::string& what) {
  bp_executable* executable = t.sentinel<bp_executable>();
  const bp_status status = compile(t, desc, &executable);
  std::string text = bp_error_text();
  t.expect_refused(status, want, what);
  t.expect_eq(executable, t.sentinel<bp_executable>(), "out_executable after a failure");
  return text;
}

void options_of_nobody_are_not_found(Context& t) {
  const bp_compiler_ops& compiler = compiler_table(t);
  ProgramMaker maker;
  make_sums(maker);
  compile_program(t, maker);
  const bp_option unknown{"conformance_no_such_option", "1"}, bare{nullptr, nullptr};
  bp_compile_desc desc = maker.desc();
  desc.option_count = 1;
  refusal_of(t, desc, BP_INVALID_ARGUMENT, "options is NULL");
  desc.options = &bare;
  refusal_of(t, desc, BP_INVALID_ARGUMENT, "an option without a key");
  desc.options = &unknown;
  const std::string text = refusal_of(t, desc, BP_NOT_FOUND, "an option that nobody has");
  t.expect(text.find(unknown.key) != std::string::npos, "the text names the option");
  uint32_t partitions[kNodeCount] = {};
  bp_reason reasons[kNodeCount] = {};
  uint64_t count = 0;
  t.expect_refused(compiler.query(compiler.self, t.target().device, &desc, kNodeCount, partitions,
                                  reasons, &count),
                   BP_NOT_FOUND, "query with an option that nobody has");
}

// Stops a compilation at a call of should_stop().
struct Stop {
  static uint32_t ask(void* self) {
    auto& s = *static_cast<Stop*>(self);
    s.is_elsewhere |= std::this_thread::get_id() != s.caller;
    s.is_late |= s.has_stopped;
    s.has_stopped = ++s.calls == s.last;
    return s.has_stopped ? 7 : 0;
  }

  uint32_t last = 0;  // The call that stops it; 0: none.
  uint32_t calls = 0;
  bool has_stopped = false, is_late = false, is_elsewhere = false;
  std::thread::id caller = std::this_thread::get_id();
};

void stopped_compilations_leave_nothing(Context& t) {
  ProgramMaker maker;
  make_sums(maker);
  bp_compile_desc desc = maker.desc();
  desc.should_stop = Stop::ask;
  const auto stopped_at = [&](uint32_t call) {
    Stop stop{.last = call};
    desc.user_data = &stop;
    refusal_of(t, desc, BP_ABORTED, "a compilation that was stopped");
    t.expect(!stop.is_late, "should_stop() is not called again after it has stopped the call");
    t.expect(!stop.is_elsewhere, "should_stop() is called on the calling thread");
  };
  compile_program(t, maker);
  Stop never;
  desc.user_data = &never;
  bp_executable* made = nullptr;
  t.require_ok(compile(t, desc, &made), "compile() that may go on");
  const OwnedExecutable executable(made, {&compiler_table(t)});
  t.require(never.calls > 0, "compile() calls should_stop()");
  t.expect(!never.is_elsewhere, "should_stop() is called on the calling thread");
  for (uint32_t call = 1; call <= std::min(never.calls, 16u); ++call) stopped_at(call);
  const std::vector<uint8_t> a = random_floats(t, 1);
  ProgramRunner runner(t, executable, {a});
  t.require_ok(runner.launch(), "launch");
  t.expect(holds_each(runner.output(), [&](size_t i) { return (kNodeCount + 1) * float_at(a, i); }),
           "the result of a compilation that was not stopped");
}

}  // namespace

void add_compilation_cases(std::vector<Case>& cases) {
  add_api_cases(
      cases, "compiler",
      {
          {"options_of_nobody_are_not_found", {"COMPILER-8"}, options_of_nobody_are_not_found},
          {"stopped_compilations_leave_nothing",
           {"COMPILER-9"},
           stopped_compilations_leave_nothing},
      });
}

}  // namespace bp::conformance
