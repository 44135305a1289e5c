/* The second C translation unit. */
#include "backplane/backend.h"
#include "backplane/ops.h"
