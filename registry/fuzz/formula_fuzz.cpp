// Fuzzes the formulas of ops that are described at run time. A text is refused with words that can
// be printed, or its expressions can be evaluated for a frame.
#include <cstring>
#include <string>
#include <vector>

#include "api/fuzz/fuzz.hpp"
#include "registry/boundary/plugin_text.hpp"
#include "registry/calls/formula.hpp"
#include "registry/tests/runtime_op_desc.hpp"

namespace {

using bp::core::Formula;
using bp::core::FormulaTensor;
using bp::core::Rule;

void evaluate(const Rule& rule, const void* frame) {
  if (rule.is_given()) static_cast<void>(rule.evaluate(frame));
}

void evaluate(const FormulaTensor& tensor, const void* frame) {
  evaluate(tensor.condition, frame);
  for (const Rule& parameter : tensor.parameters) evaluate(parameter, frame);
  evaluate(tensor.call.dtype, frame);
  evaluate(tensor.call.shape, frame);
  for (const auto& input : tensor.call.inputs) evaluate(input.value, frame);
  for (const FormulaTensor& input : tensor.inputs) evaluate(input, frame);
}

// Evaluates every expression, with no value in any of the earlier lines.
void evaluate(const Formula& formula) {
  static constexpr int64_t kShape[] = {2, 3};
  bp_tensor x{};
  x.shape = x.strides = kShape;
  x.ndim = 2;
  x.dtype = BP_F32;
  const bp_tensor* const given = &x;
  std::vector<uint64_t> frame(formula.run_size_bytes / 8);
  for (const size_t place : {1, 2, 3}) std::memcpy(&frame[place], &given, sizeof(given));
  for (const auto& line : formula.lines) {
    evaluate(line.value, frame.data());
    evaluate(line.tensor, frame.data());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using bp::fuzz::check;
  static bp::core::TestOp op("acme.fuzzed");
  static const bp_op_desc desc = op.desc();
  const bp::core::FormulaSubject subject{.name = desc.name,
                                         .arguments = op.arguments,
                                         .since = 0,
                                         .revision = 1,
                                         .frame_size_bytes = desc.frame_size_bytes};
  const std::string text(bp::fuzz::text_of(data, size));
  for (const bool is_backward : {false, true}) {
    Formula formula;
    const std::string words = is_backward ? bp::core::check_backward(subject, text, formula)
                                          : bp::core::parse_decomposition(subject, text, formula);
    check(bp::clean_text(words, bp::LineBreaks::kEscape, words.size()) == words,
          "a refusal can be printed", words);
    check(is_backward || !words.empty() || !formula.lines.empty(), "what is accepted has lines");
    if (words.empty() && !is_backward) evaluate(formula);
  }
  return 0;
}
