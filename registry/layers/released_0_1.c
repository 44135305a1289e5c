/* Has the sizes and bits of the headers of ABI 0.1, because it is compiled against these headers
 * alone. */
#include "backplane/backend.h"

const uint32_t bp_test_released_0_1[] = {
    sizeof(bp_host),       sizeof(bp_backend),
    sizeof(bp_registrar),  sizeof(bp_device_properties),
    sizeof(bp_heap),       sizeof(bp_kernel),
    sizeof(bp_device_ops), sizeof(bp_allocator_ops),
    sizeof(bp_stream_ops), sizeof(bp_event_ops),
};

const uint32_t bp_test_released_bits_0_1[] = {
    BP_MEMORY_PEER | BP_MEMORY_STREAM_ORDERED,
    BP_EVENT_TIMING | BP_EVENT_HOST_SIGNAL,
};
