#include "conformance/cases/rules/spec_rules.hpp"

#include <optional>
#include <stdexcept>
#include <utility>

#include "conformance/cases/rules/spec_program.hpp"

namespace bp::conformance {

using spec::parse_program;
using spec::Program;
using spec::Value;

struct SpecJudge::Programs {
  std::vector<Program> rules;
  std::vector<Program> shapes;
  std::vector<Program> dtypes;
  Program flops;
};

SpecJudge::SpecJudge(uint32_t op) : op_(op), spec_(spec_of(op)) {
  Programs programs;
  for (const SpecRule& rule : spec_.rules) {
    programs.rules.push_back(parse_program(op_info(op), rule.program));
  }
  for (const SpecOutput& output : spec_.outputs) {
    programs.shapes.push_back(parse_program(op_info(op), output.shape));
    programs.dtypes.push_back(parse_program(op_info(op), output.dtype));
  }
  programs.flops = parse_program(op_info(op), spec_.flops);
  programs_ = std::make_unique<const Programs>(std::move(programs));
}

SpecJudge::~SpecJudge() = default;

std::vector<SpecJudge::Breach> SpecJudge::breaches(const Frame& frame) const {
  std::vector<Breach> result;
  for (size_t i = 0; i < spec_.rules.size(); ++i) {
    const SpecRule& rule = spec_.rules[i];
    const size_t count =
        rule.is_of_tensor
            ? spec::tensors_of(frame.data(), op_info(op_).member(rule.argument)).size()
            : 1;
    for (size_t item = 0; item < count; ++item) {
      if (!spec::is_true(spec::run(programs_->rules[i], frame.data(), item)))
        result.push_back({i, item});
    }
  }
  return result;
}

std::optional<Shape> SpecJudge::wanted(const Frame& frame, const Breach& breach) const {
  if (!std::string_view(spec_.rules[breach.rule].program).ends_with(" ==")) return std::nullopt;
  const Value value = spec::wanted_by(programs_->rules[breach.rule], frame.data(), breach.item);
  if (const auto* integer = std::get_if<int64_t>(&value)) return Shape{*integer};
  if (const auto* shape = std::get_if<Shape>(&value)) return *shape;
  return std::nullopt;
}

std::vector<SpecJudge::Output> SpecJudge::outputs(const Frame& frame) const {
  std::vector<Output> result;
  for (size_t i = 0; i < spec_.outputs.size(); ++i) {
    const Program& shape = programs_->shapes[i];
    const Value dtype = spec::run(programs_->dtypes[i], frame.data(), 0);
    result.push_back({spec_.outputs[i].argument, static_cast<bp_dtype>(std::get<int64_t>(dtype)),
                      shape.empty() ? Shape() : std::get<Shape>(spec::run(shape, frame.data(), 0)),
                      shape.empty()});
  }
  return result;
}

double SpecJudge::flops(const Frame& frame) const {
  if (programs_->flops.empty()) return 0;
  const Value value = spec::run(programs_->flops, frame.data(), 0);
  if (!spec::exists(value)) throw std::invalid_argument("the call has no number of flops");
  return static_cast<double>(std::get<int64_t>(value));
}

}  // namespace bp::conformance
