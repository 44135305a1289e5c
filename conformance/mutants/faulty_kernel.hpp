// The mutants with a fault that their option names. A plugin of mutants has them in its tables.
#pragma once

#include <span>

#include "conformance/mutants/mutant.hpp"
#include "conformance/mutants/runtime.hpp"

namespace bp::faults {

// Return the mutant of ops, and the mutant of tables.
std::span<const mutants::Mutant> faulty_kernels();
std::span<const mutants::RuntimeMutant> faulty_tables();

}  // namespace bp::faults
