/* backplane/test_link.h - a link of tensors for tests, which no production host gives.
 *
 * A link that must be understood has a meaning of its own, so a test cannot know those of a
 * backend. A backend with a kernel that understands this one shows that links reach their kernel.
 */
#ifndef BACKPLANE_TEST_LINK_H_
#define BACKPLANE_TEST_LINK_H_

#include "backplane/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In the first block of those given to vendors, as is the type of bp_test_fault_ops. */
enum { BP_STRUCT_TEST_SCALE = 0x01000002 };

/* Each element of the tensor stands for `scale` times itself. A request. It must be understood. */
typedef struct bp_test_scale {
  uint32_t struct_size;
  uint32_t struct_type; /* BP_STRUCT_TEST_SCALE | BP_STRUCT_MUST_UNDERSTAND. */
  const void* next;
  double scale; /* Not 0. */
} bp_test_scale;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* BACKPLANE_TEST_LINK_H_ */
