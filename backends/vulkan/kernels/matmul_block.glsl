#if !defined(BP_MATMUL_BLOCK)
#define BP_MATMUL_BLOCK
// This many elements along k are summed at a time, and then added to the total, so that the error
// grows with the square root of k. A part has at most 65536 elements.
const uint kBlock = 128u;
#endif
