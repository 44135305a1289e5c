// Puts functions of the host in front of a backend's stream functions, for two reasons. The host
// remembers things about a stream by its address, and must forget them when the stream ends,
// because another stream may get the address. And if the host gave a stream its failure, the
// functions that return this failure give the host's text.
#pragma once

namespace bp::core {

struct Target;

// Moves target.own_tables.streams to target.next_streams, and puts functions of the host in its
// place.
void watch_stream_ends(Target& target);

}  // namespace bp::core
