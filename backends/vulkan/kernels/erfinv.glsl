// The inverse of the error function. erfinv(x) / x depends on w = -log(1 - x^2) alone. It is a
// polynomial in w if x is small, and a polynomial in the root of w if x is near 1. Each polynomial
// interpolates it at the Chebyshev nodes of its part.
#if defined(COMPUTE_F32)
// The polynomials for w up to 5, and beyond.
float erfinv_small_f32(float w) {
  precise const float t = w - 2.5;
  precise float p = -8.931926e-09;
  p = p * t + 2.3335968e-08;
  p = p * t + 4.6813136e-07;
  p = p * t - 3.4639852e-06;
  p = p * t - 4.97242e-06;
  p = p * t + 0.00021834939;
  p = p * t - 0.0012527264;
  p = p * t - 0.004177393;
  p = p * t + 0.24664028;
  p = p * t + 1.5014094;
  return p;
}

float erfinv_large_f32(float root) {
  precise const float t = root - 3.125;
  precise float p = 0.00012673163;
  p = p * t - 0.00017590741;
  p = p * t - 0.00031939015;
  p = p * t + 0.0013138078;
  p = p * t - 0.0025228406;
  p = p * t + 0.0037802393;
  p = p * t - 0.005300703;
  p = p * t + 0.0070492504;
  p = p * t + 1.0037187;
  p = p * t + 2.9583201;
  return p;
}

// Returns erfinv(x), which is infinite at -1 and 1, and NaN beyond.
float erfinv_f32(float x) {
  precise const float product = (1.0 - x) * (1.0 + x);
  const float w = -log_f32(product);
  if (abs(x) == 1.0) return x * infinity();
  return x * (w < 5.0 ? erfinv_small_f32(w) : erfinv_large_f32(sqrt(w)));
}

#elif defined(COMPUTE_F64)
// The polynomials for w up to 6.25, for its root up to 4, and beyond.
double erfinv_small_f64(double w) {
  precise const double t = w - 3.125lf;
  precise double p = -3.5932028927020693e-22lf;
  p = p * t + 3.194015548136271e-21lf;
  p = p * t + 1.999259988861535e-20lf;
  p = p * t - 3.4734793888538036e-19lf;
  p = p * t + 6.075050702072414e-19lf;
  p = p * t + 1.5510787009902526e-17lf;
  p = p * t - 1.2215637192404172e-16lf;
  p = p * t - 3.94018812230432e-17lf;
  p = p * t + 6.521333511502239e-15lf;
  p = p * t - 4.0020031087558496e-14lf;
  p = p * t - 8.07192593899004e-14lf;
  p = p * t + 2.6305268312595183e-12lf;
  p = p * t - 1.2978805369932565e-11lf;
  p = p * t - 5.414303283919504e-11lf;
  p = p * t + 1.051223377050429e-09lf;
  p = p * t - 4.1126604371632185e-09lf;
  p = p * t - 2.907039127564132e-08lf;
  p = p * t + 4.23478816822246e-07lf;
  p = p * t - 1.3654691758785656e-06lf;
  p = p * t - 1.3882523393957483e-05lf;
  p = p * t + 0.00018673420801981186lf;
  p = p * t - 0.0007407025341546431lf;
  p = p * t - 0.006033670871426851lf;
  p = p * t + 0.24015818242558834lf;
  p = p * t + 1.6536545626831027lf;
  return p;
}

double erfinv_large_f64(double root) {
  precise const double t = root - 3.25lf;
  precise double p = 7.680200479077053e-09lf;
  p = p * t - 1.5305397964152548e-08lf;
  p = p * t - 2.091453334773126e-08lf;
  p = p * t + 1.3158663683192966e-07lf;
  p = p * t - 2.4549818963339823e-07lf;
  p = p * t - 2.761716223816241e-08lf;
  p = p * t + 1.4815977874022539e-06lf;
  p = p * t - 3.985705945648173e-06lf;
  p = p * t + 2.93257845538535e-06lf;
  p = p * t + 1.2465028224217455e-05lf;
  p = p * t - 4.732068066544697e-05lf;
  p = p * t + 6.828711739251955e-05lf;
  p = p * t + 2.4031512865758357e-05lf;
  p = p * t - 0.0003550378137852452lf;
  p = p * t + 0.0009532893415794137lf;
  p = p * t - 0.0016882755354488555lf;
  p = p * t + 0.00249144209795696lf;
  p = p * t - 0.0037512085082247342lf;
  p = p * t + 0.005370914553555033lf;
  p = p * t + 1.0052589676941655lf;
  p = p * t + 3.0838856104922208lf;
  return p;
}

double erfinv_largest_f64(double root) {
  precise const double t = root - 5.0625lf;
  precise double p = 4.801222688342719e-12lf;
  p = p * t - 1.46441397117492e-11lf;
  p = p * t + 3.000753526266373e-13lf;
  p = p * t + 7.957682950449638e-11lf;
  p = p * t - 3.1531939171908245e-10lf;
  p = p * t + 9.842304530389056e-10lf;
  p = p * t - 2.5208083365866005e-09lf;
  p = p * t + 5.385834989574248e-09lf;
  p = p * t - 1.0319907990345242e-08lf;
  p = p * t + 2.0343395283506198e-08lf;
  p = p * t - 5.231894567419205e-08lf;
  p = p * t + 1.9558768226538614e-07lf;
  p = p * t - 8.872227708499568e-07lf;
  p = p * t + 4.115357176272387e-06lf;
  p = p * t - 1.806295233360962e-05lf;
  p = p * t + 7.010167456817717e-05lf;
  p = p * t - 0.00019677853802492118lf;
  p = p * t - 0.0001773033612949483lf;
  p = p * t + 1.0102806778035605lf;
  p = p * t + 4.913049587233785lf;
  return p;
}

// Returns erfinv(x), which is infinite at -1 and 1, and NaN beyond.
double erfinv_f64(double x) {
  precise const double product = (1.0lf - x) * (1.0lf + x);
  const double w = -log_f64(product), root = sqrt(w);
  if (abs(x) == 1.0lf) return x * double(infinity());
  if (w < 6.25lf) return x * erfinv_small_f64(w);
  return x * (root < 4.0lf ? erfinv_large_f64(root) : erfinv_largest_f64(root));
}
#endif
