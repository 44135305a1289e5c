/* If a header defines a symbol, this file and second.c fail to link together. */
#include "backplane/backend.h"
#include "backplane/ops.h"

int main(void) { return 0; }
