// What the host adds to a backend's streams. What it remembers of a stream by its address ends with
// the stream, because the address may come back as that of another one; and a failure that the host
// gave to a stream has the host's words.
#pragma once

namespace bp::core {

struct Target;

// Puts functions of the host in front of target.own_tables.streams, which becomes
// target.next_streams.
void watch_stream_ends(Target& target);

}  // namespace bp::core
