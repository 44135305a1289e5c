// Programs with decompositions in place of what the compiler does not take, and what is left then.
#pragma once

#include <memory>
#include <string>

#include "backplane/program.h"
#include "registry/state/state.hpp"

namespace bp::core {

struct DecomposedRelease {
  void operator()(bp_decomposed_program* program) const { bp_decomposed_program_release(program); }
};
using DecomposedHandle = std::unique_ptr<bp_decomposed_program, DecomposedRelease>;

// Does bp_program_decompose(). `out_desc` lives as long as `out_program`.
bp_status decompose(const Target& target, const bp_compile_desc& desc,
                    DecomposedHandle& out_program, const bp_compile_desc*& out_desc);

// Says which node of a decomposed program the compiler does not take, and why. Returns "" if it
// takes all.
std::string refused_node(const Target& target, const bp_compile_desc& desc,
                         const bp_decomposed_program& program);

}  // namespace bp::core
