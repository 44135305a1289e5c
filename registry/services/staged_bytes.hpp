// Bytes on their way from one device to another one through host memory. The stream of the second
// device waits for an event that the host signals when the first device has written the bytes.
#pragma once

#include "registry/services/transfers.hpp"

namespace bp::services {

// Copies the range `src` of one device to the range `dst` of another one. Their sizes are equal and
// above 0. `completion` is called when `src` may go.
bp_status copy_through_host(const CopySide& dst_side, const bp_buffer_ref& dst,
                            const CopySide& src_side, const bp_buffer_ref& src,
                            const Completion& completion);

}  // namespace bp::services
