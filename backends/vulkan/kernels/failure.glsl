// The report of a shader about wrong data. The host fails the stream for it when the work has
// ended.
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer Failure {
  uint is_set;
  uint reserved;
  int64_t value;
  uint64_t place;
};

// Reports a wrong value, which lies at the address `place`. If there are several, any one of them
// is reported.
void fail_with(uint64_t address, int64_t value, uint64_t place) {
  Failure failure = Failure(address);
  failure.value = value;
  failure.place = place;
  failure.is_set = 1u;
}
