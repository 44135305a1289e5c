// A sum of many terms of type SUMMED, in blocks of 64, so that the error grows with the square root
// of their number.
struct Sum {
  SUMMED total, block;
  uint count;
};

Sum no_sum() { return Sum(SUMMED(0.0), SUMMED(0.0), 0u); }

void take(inout Sum sum, SUMMED term) {
  sum.block += term;
  if ((++sum.count & 63u) == 0u) {
    sum.total += sum.block;
    sum.block = SUMMED(0.0);
  }
}

SUMMED sum_of(Sum sum) { return sum.total + sum.block; }
