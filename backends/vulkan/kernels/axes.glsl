// Returns the offset of an element whose number counts over several axes, the innermost first.
uint64_t offset_of(uint index, uint rank, uint extents[8], int64_t strides[8]) {
  uint64_t offset = 0ul;
  uint rest = index;
  [[unroll]] for (uint axis = 0u; axis < 8u; ++axis) {
    if (axis >= rank) continue;
    uint place = rest;
    if (axis + 1u < rank) {
      const uint next = rest / extents[axis];
      place = rest - next * extents[axis];
      rest = next;
    }
    offset += uint64_t(int64_t(uint64_t(place)) * strides[axis]);
  }
  return offset;
}
