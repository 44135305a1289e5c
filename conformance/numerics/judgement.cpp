#include "conformance/numerics/judgement.hpp"

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <string>

#include "conformance/numerics/judgements.hpp"

namespace bp::conformance {

const Judgement& judgement_of(uint32_t op) {
  const auto* const found = std::ranges::find(kJudgements, op, &Judgement::op);
  if (found == std::end(kJudgements)) {
    throw std::out_of_range("the spec has no op " + std::to_string(op));
  }
  return *found;
}

}  // namespace bp::conformance
