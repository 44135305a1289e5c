// The checks that several layers share.
#pragma once

#include <cstdint>

namespace bp::nn {

// Throws Error, which names layer and argument, if `value` is below 1.
void check_positive(const char* layer, const char* argument, int64_t value);

}  // namespace bp::nn
