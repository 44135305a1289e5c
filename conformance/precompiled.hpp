// What most cases of the suite include, for builds with BACKPLANE_PRECOMPILE_HEADERS. Sources still
// include what they use.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "conformance/cases/fixtures.hpp"
#include "conformance/cases/op_case.hpp"
