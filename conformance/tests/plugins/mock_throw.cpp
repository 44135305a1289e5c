// An exception leaves this backend, which the boundary forbids.
#include <stdexcept>

extern "C" void mock_throw() { throw std::runtime_error("thrown by the mock"); }
