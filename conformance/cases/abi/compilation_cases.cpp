// Cases for what a host asks of a compilation, options and to stop, and for what it asks about one:
// its fingerprint, and whether bytes hold one.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

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

void ops_of_nobody_are_not_found(Context& t) {
  const bp_compiler_ops& compiler = compiler_table(t);
  ProgramMaker maker;
  make_sums(maker);
  compile_program(t, maker);
  ProgramMaker odd;
  const uint32_t x = odd.add_value(BP_VALUE_INPUT), y = odd.add_value(BP_VALUE_OUTPUT);
  odd.add_node(UINT32_MAX, x, x, y);
  const std::string text = refusal_of(t, odd.desc(), BP_NOT_FOUND, "an op that nobody describes");
  t.expect(text.find(std::to_string(UINT32_MAX)) != std::string::npos, "the text names the op");
  uint32_t partition = 0;
  bp_reason reason = nullptr;
  uint64_t count = 0;
  t.expect_refused(
      compiler.query(compiler.self, t.target().device, &odd.desc(), 1, &partition, &reason, &count),
      BP_NOT_FOUND, "query with an op that nobody describes");
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

// ---- Fingerprints and bytes ---------------------------------------------------------------------

using Fingerprint = std::array<uint64_t, 2>;

// y = op(op(a, k), a), with a constant k.
struct Described {
  explicit Described(const std::vector<uint8_t>& data, uint32_t op = BP_OP_ADD,
                     bool is_swapped = false) {
    const uint32_t a = maker.add_value(BP_VALUE_INPUT),
                   k = maker.add_value(BP_VALUE_CONSTANT, data.data()),
                   s = maker.add_value(BP_VALUE_TEMPORARY), y = maker.add_value(BP_VALUE_OUTPUT);
    maker.add_node(BP_OP_ADD, is_swapped ? k : a, is_swapped ? a : k, s);
    maker.add_node(op, s, a, y);
  }

  ProgramMaker maker;
};

Fingerprint fingerprint_of(Context& t, Described&& described, bp_launch_flags flags = 0) {
  const bp_compiler_ops& compiler = compiler_table(t);
  bp_compile_desc desc = described.maker.desc();
  desc.flags = flags;
  desc.should_stop = [](void*) { return 1u; };
  Fingerprint words{};
  const bp_status status =
      compiler.fingerprint(compiler.self, t.target().device, &desc, words.data());
  if (status == BP_UNSUPPORTED) t.not_supported(std::string("fingerprint: ") + bp_error_text());
  t.require_ok(status, "fingerprint");
  return words;
}

void fingerprints_tell_programs_apart(Context& t) {
  const std::vector<uint8_t> data = random_floats(t, 1);
  std::vector<uint8_t> other = data;
  other.back() ^= 1;
  // Both exist at a time, so that they lie at different addresses.
  Described one(data), same(data);
  const Fingerprint first = fingerprint_of(t, std::move(one));
  t.expect(fingerprint_of(t, std::move(same)) == first, "equal descriptions have one fingerprint");
  const std::vector<uint8_t> copy = data;
  t.expect(fingerprint_of(t, Described(copy)) == first, "addresses are not part of a fingerprint");
  const std::pair<const char*, Fingerprint> others[] = {
      {"another op", fingerprint_of(t, Described(data, BP_OP_MUL))},
      {"the other order of values", fingerprint_of(t, Described(data, BP_OP_ADD, true))},
      {"a bit of a constant", fingerprint_of(t, Described(other))},
      {"another flag", fingerprint_of(t, Described(data), BP_LAUNCH_DETERMINISTIC)},
  };
  for (const auto& [what, words] : others) {
    t.expect(words != first, std::string("another fingerprint has ") + what);
  }
  const bp_compiler_ops& compiler = compiler_table(t);
  Described described(data);
  t.expect_refused(
      compiler.fingerprint(compiler.self, t.target().device, &described.maker.desc(), nullptr),
      BP_INVALID_ARGUMENT, "fingerprint: out_words is NULL");
}

void bytes_are_validated(Context& t) {
  const bp_compiler_ops& compiler = compiler_table(t);
  ProgramMaker maker;
  make_sums(maker);
  const std::vector<uint8_t> bytes = serialized(t, compile_program(t, maker));
  const auto validate = [&](const std::vector<uint8_t>& given) {
    return compiler.validate(compiler.self, t.target().device, given.data(), given.size());
  };
  const bp_status status = validate(bytes);
  if (status == BP_UNSUPPORTED) t.not_supported(std::string("validate: ") + bp_error_text());
  t.require_ok(status, "validate");
  for (size_t k = 0; k < 16; ++k) {
    std::vector<uint8_t> damaged = bytes;
    damaged[k * (bytes.size() - 1) / 15] ^= 0x10;
    t.expect_refused(validate(damaged), BP_INCOMPATIBLE, "validate of bytes that were changed");
  }
  for (const size_t size : {bytes.size() / 2, bytes.size() - 1, size_t{1}}) {
    const std::vector<uint8_t> cut(bytes.begin(), bytes.begin() + static_cast<int64_t>(size));
    t.expect_refused(validate(cut), BP_INCOMPATIBLE, "validate of bytes that were cut");
  }
  t.expect_refused(compiler.validate(compiler.self, t.target().device, nullptr, bytes.size()),
                   BP_INVALID_ARGUMENT, "validate: data is NULL");
}

// ---- Attributes -------------------------------------------------------------------------------

// y = gelu(x) with one of its two approximations, which differ by up to 5e-4.
struct GeluProgram {
  explicit GeluProgram(uint32_t approximation) {
    for (const bp_value_role role : {BP_VALUE_INPUT, BP_VALUE_OUTPUT}) {
      bp_program_value& value = values[role == BP_VALUE_INPUT ? 0 : 1];
      value.struct_size = sizeof(value);
      value.struct_type = BP_STRUCT_PROGRAM_VALUE;
      value.shape = kProgramShape;
      value.dtype = BP_F32;
      value.ndim = 1;
      value.role = role;
    }
    frame.approximation = approximation;
  }
  GeluProgram(const GeluProgram&) = delete;

  OwnedExecutable compile(Context& t) {
    const bp_compiler_ops& compiler = compiler_table(t);
    uint32_t partition = 0;
    bp_reason reason = nullptr;
    uint64_t count = 0;
    t.require_ok(
        compiler.query(compiler.self, t.target().device, &desc, 1, &partition, &reason, &count),
        "query");
    if (reason != nullptr) t.not_supported(std::string("the compiler refuses gelu: ") + reason);
    return compile_taken(t, desc);
  }

  bp_program_value values[2] = {};
  bp_tensor view{.shape = kProgramShape, .strides = kProgramStrides, .ndim = 1, .dtype = BP_F32};
  bp_gelu_args frame{.struct_size = sizeof(frame), .x = &view, .y = &view};
  uint32_t numbers[2] = {0, 1};
  bp_program_node node{.struct_size = sizeof(node),
                       .struct_type = BP_STRUCT_PROGRAM_NODE,
                       .args = &frame,
                       .values = numbers,
                       .value_count = 2,
                       .op = BP_OP_GELU};
  bp_program program{.struct_size = sizeof(program),
                     .struct_type = BP_STRUCT_PROGRAM,
                     .values = values,
                     .value_count = 2,
                     .value_stride_bytes = sizeof(bp_program_value),
                     .nodes = &node,
                     .node_count = 1,
                     .node_stride_bytes = sizeof(bp_program_node)};
  bp_compile_desc desc{.struct_size = sizeof(desc),
                       .struct_type = BP_STRUCT_COMPILE_DESC,
                       .format = "backplane.graph",
                       .data = &program,
                       .size_bytes = sizeof(program)};
};

double gelu_of(double x, uint32_t approximation) {
  constexpr double kRootOfTwoByPi = 0.7978845608028654;
  return approximation == BP_GELU_APPROXIMATION_TANH
             ? 0.5 * x * (1 + std::tanh(kRootOfTwoByPi * (x + 0.044715 * x * x * x)))
             : 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
}

// The programs have the same shapes, and differ in an attribute. Both live at once.
void attributes_tell_programs_apart(Context& t) {
  std::vector<uint8_t> x(kProgramBytes);
  for (size_t i = 0; i < kProgramCount; ++i) {
    const auto value = static_cast<float>(i) / 16 - 3;
    std::memcpy(&x[i * sizeof(value)], &value, sizeof(value));
  }
  constexpr uint32_t kBoth[] = {BP_GELU_APPROXIMATION_NONE, BP_GELU_APPROXIMATION_TANH};
  GeluProgram erf(kBoth[0]), tanh(kBoth[1]);
  const OwnedExecutable first = erf.compile(t), second = tanh.compile(t);
  for (const uint32_t approximation : {kBoth[0], kBoth[1], kBoth[0]}) {
    ProgramRunner runner(t, approximation == kBoth[0] ? first : second, {x});
    t.require_ok(runner.launch(), "launch");
    const std::vector<uint8_t> y = runner.output();
    for (size_t i = 0; i < kProgramCount; ++i) {
      const double want = gelu_of(static_cast<double>(float_at(x, i)), approximation);
      const auto got = static_cast<double>(float_at(y, i));
      if (std::fabs(got - want) <= 2e-5) continue;
      t.fail({"approximation " + std::to_string(approximation) + ": element " + std::to_string(i) +
                  " is " + std::to_string(got) + ", expected " + std::to_string(want),
              "values", "COMPILER-10"});
    }
  }
}

}  // namespace

void add_compilation_cases(std::vector<Case>& cases) {
  add_api_cases(
      cases, "compiler",
      {
          {"options_of_nobody_are_not_found", {"COMPILER-8"}, options_of_nobody_are_not_found},
          {"ops_of_nobody_are_not_found", {"OP-11"}, ops_of_nobody_are_not_found},
          {"stopped_compilations_leave_nothing",
           {"COMPILER-9"},
           stopped_compilations_leave_nothing},
          {"fingerprints_tell_programs_apart", {"COMPILER-10"}, fingerprints_tell_programs_apart},
          {"attributes_tell_programs_apart", {"COMPILER-10"}, attributes_tell_programs_apart},
          {"bytes_are_validated", {"COMPILER-11"}, bytes_are_validated},
      });
}

}  // namespace bp::conformance
