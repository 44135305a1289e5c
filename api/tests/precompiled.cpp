// The one source of the target that precompiles headers for all unit tests (BackplaneModule.cmake);
// CMake gives headers only to targets with a source.
#include <gtest/gtest.h>
