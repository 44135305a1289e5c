// The families of cases about memory that comes from others, goes to them, or is used in quantity.
#pragma once

#include <vector>

#include "conformance/case.hpp"

namespace bp::conformance {

void add_address_cases(std::vector<Case>& cases);
void add_external_cases(std::vector<Case>& cases);
void add_virtual_memory_cases(std::vector<Case>& cases);
void add_churn_cases(std::vector<Case>& cases);
void add_dlpack_cases(std::vector<Case>& cases);
void add_host_memory_cases(std::vector<Case>& cases);

}  // namespace bp::conformance
