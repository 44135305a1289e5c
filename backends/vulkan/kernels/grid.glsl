// Elements of tensors (n, c, spatial) with three spatial axes (grid.hpp). Strides are in bytes.

uint64_t at(uint64_t base, int64_t strides[5], uint n, uint c, ivec3 place) {
  return base + uint64_t(int64_t(uint64_t(n)) * strides[0] + int64_t(uint64_t(c)) * strides[1] +
                         int64_t(place.x) * strides[2] + int64_t(place.y) * strides[3] +
                         int64_t(place.z) * strides[4]);
}

// Converts the number of a result to its place.
void locate(uint number, uint extents[5], out uint n, out uint c, out ivec3 place) {
  uint rest = number;
  [[unroll]] for (int i = 4; i >= 2; --i) {
    place[i - 2] = int(rest % extents[i]);
    rest /= extents[i];
  }
  c = rest % extents[1];
  n = rest / extents[1];
}
