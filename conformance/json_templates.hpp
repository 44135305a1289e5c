// Headers that most tests of the suite include, for builds with BACKPLANE_PRECOMPILE_HEADERS. The
// functions of the JSON library are compiled once, in json_templates.cpp, and not in each source.
// Sources still include what they use.
#pragma once

#include <nlohmann/json.hpp>

extern template class nlohmann::basic_json<>;
