/* The parts that both test hosts share: how they fail, and how they use a backend's tables. */
#ifndef EXERCISE_H_
#define EXERCISE_H_

/* slots.py writes this header from the headers that the program is compiled with. */
#include "slots.h"

/* The programs are compiled with released headers too. Before 0.3 these slots had other names, and
 * these calls had no timeout. */
#if BP_ABI_MAJOR == 0 && BP_ABI_MINOR < 3
#define deallocate free
#define log_line log
#define FOREVER
#else
#define FOREVER , UINT64_MAX
#endif

#define WORDS 512
#define VERSION(major, minor) ((uint32_t)(major) << 16 | (uint32_t)(minor))

/* The tables of one device, in which every slot can be called, and an f32 kernel of add. */
typedef struct tables {
  bp_device* device;
  bp_device_ops devices;
  bp_allocator_ops allocator;
  bp_stream_ops streams;
  bp_event_ops events;
#if BP_ABI_MAJOR > 0 || BP_ABI_MINOR >= 3
  bp_profiler_ops profiler;
#endif
  const bp_kernel* add;
} tables;

/* The text of the latest failure. */
extern char words[WORDS];

/* Prints "FAILED: what" and ends the program. */
void failed(const char* what);
void expect(int condition, const char* what);
void expect_ok(bp_status status, const char* what);

/* Uses every table once, as far as `version` of the backend allows. */
void exercise(const tables* t, uint32_t version);

#endif /* EXERCISE_H_ */
