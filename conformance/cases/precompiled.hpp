// The headers that most cases of the suite include, for builds with BACKPLANE_PRECOMPILE_HEADERS.
// Sources still include what they use.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "conformance/cases/engine/op_case.hpp"
#include "conformance/cases/fixtures/fixtures.hpp"
