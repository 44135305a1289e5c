// The parts that the page of one run and the comparison of several share.
#pragma once

#include <string>
#include <string_view>

#include "conformance/report/coverage.hpp"
#include "conformance/report/speed.hpp"
#include "conformance/report/standing.hpp"

namespace bp::conformance {

// Returns the class that colors a cell of a heat map, and the words for it.
const char* class_of(Outcome outcome);
const char* class_of(const ServedCounts& counts);
const char* class_of(const ProfileStanding& profile);
const char* class_of(const Badge& badge);
std::string words_of(const ServedCounts& counts);

// Returns the meaning of the colors and letters of a heat map.
std::string heat_key();

// Returns the figures of a profile: "holds: 412 right, 6 refused".
std::string standing_text(const ProfileStanding& profile);

// Returns the name of the device, and its memory.
std::string device_name(const nlohmann::json& hello);
std::string memory_text(const nlohmann::json& hello);

// Returns the device's entry of hello; NULL if the run ended before it was known.
const nlohmann::json* target_of(const nlohmann::json& hello);

}  // namespace bp::conformance
