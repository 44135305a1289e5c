// Writes to the files of layers.
//
// The default names of these files can be guessed, so another user of a shared folder can put a
// symbolic link there that leads to a file of the user who runs the program. No link is followed.
#pragma once

#include <string>
#include <string_view>

namespace bp::layers {

// Opens the file at `path`, writes `bytes` and closes it again: a descriptor that stayed open would
// be one more than the program has without the layer. `flags` are those of open(2), beyond those
// for writing. Returns why this fails, or "".
std::string write_to(const std::string& path, int flags, std::string_view bytes);

}  // namespace bp::layers
