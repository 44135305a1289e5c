// What a kernel asks of the captures of its instance, without the contents of capture.hpp.
#pragma once

#include "backplane/stream.h"

namespace bp {

class Captures;

// Returns whether the stream captures.
bool is_capturing(const Captures& captures, bp_stream* stream);

}  // namespace bp
