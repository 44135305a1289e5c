// Whether the ggml of this process is the one that the library was built for.
#pragma once

#include <string>

namespace bpg {

// Returns "" or a sentence that names what differs and says what to do. The structs of ggml and the
// numbers of its ops change between versions, also where the version of its backend API does not.
std::string version_problem();

// What ggml compares if it has several builds of one backend: 0 if the versions differ.
int score();

}  // namespace bpg
