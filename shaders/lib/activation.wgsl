// activation: x / (1 + exp(-k)), with k = x (SiLU) or 2 sqrt(2 / pi) (x + 0.044715 x^3) (GELU by tanh).
// error   relative (4 + 2 |k|) * 1.2e-7: exp has 3 + 2|x| ulp in WGSL, division 2.5; of GELU (4 + 5.5 |k|) * 1.2e-7,
//         for k itself is rounded seven times; + exp(-80) |x|, where it is cut off
// source  Elfwing et al. 2017, arXiv:1702.03118; Hendrycks & Gimpel 2016, arXiv:1606.08415
override GELU: bool = false;

fn activated(x: f32) -> f32 {
  var k = x;
  if (GELU) {
    k = 1.5957691216 * (x + 0.044715 * x * x * x);
  }
  // exp(80) is finite; past it the quotient is zero to f32 precision anyway, and inf / inf must not arise
  return x / (1.0 + exp(min(-k, 80.0)));
}
