/* A shared library, but no plugin. */
#include "plugin.h"

BP_API int bp_test_something_else(void);
int bp_test_something_else(void) { return 1; }
