/* A shared library, but no plugin. */
#include "plugin.h"

BP_EXPORT int bp_test_something_else(void);
int bp_test_something_else(void) { return 1; }
