/* With second.c: a header that defines a symbol fails to link. */
#include "backplane/backend.h"
#include "backplane/ops.h"

int main(void) { return 0; }
