// Arithmetic with twice the digits of VALUE. A pair is the number high + low, where low is at most
// about an ulp of high. The sums are those of Knuth, and the products are those of Dekker. They
// need operations that are rounded to nearest, and no fused multiply-add.
struct Pair {
  VALUE high, low;
};

// Returns a + b, if |a| >= |b| or a is 0.
Pair ordered_sum(VALUE a, VALUE b) {
  precise const VALUE high = a + b;
  precise const VALUE low = b - (high - a);
  return Pair(high, low);
}

Pair exact_sum(VALUE a, VALUE b) {
  precise const VALUE high = a + b;
  precise const VALUE added = high - a;
  precise const VALUE low = (a - (high - added)) + (b - added);
  return Pair(high, low);
}

// Returns a * b, unless its last digits are too small for VALUE.
Pair exact_product(VALUE a, VALUE b) {
  const VALUE a_high = upper_digits(a), b_high = upper_digits(b);
  precise const VALUE a_low = a - a_high, b_low = b - b_high;
  precise const VALUE high = a * b;
  precise const VALUE low =
      ((a_high * b_high - high) + a_high * b_low + a_low * b_high) + a_low * b_low;
  return Pair(high, low);
}

Pair sum_of(Pair a, Pair b) {
  const Pair sum = exact_sum(a.high, b.high);
  precise const VALUE low = sum.low + (a.low + b.low);
  return ordered_sum(sum.high, low);
}

Pair product_of(Pair a, Pair b) {
  const Pair product = exact_product(a.high, b.high);
  precise const VALUE low = product.low + (a.high * b.low + a.low * b.high);
  return ordered_sum(product.high, low);
}

Pair quotient_of(Pair a, Pair b) {
  const VALUE q = quotient_of(a.high, b.high);
  const Pair product = exact_product(q, b.high);
  precise const VALUE rest = ((a.high - product.high) - product.low) + (a.low - q * b.low);
  return ordered_sum(q, quotient_of(rest, b.high));
}

Pair root_of(Pair x) {
  const VALUE root = root_of(x.high);
  const Pair square = exact_product(root, root);
  precise const VALUE rest = ((x.high - square.high) - square.low) + x.low;
  return ordered_sum(root, is_zero(root) ? root : quotient_of(rest, root + root));
}
