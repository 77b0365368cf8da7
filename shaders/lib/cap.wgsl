// cap: soft capping, CAP * tanh(x / CAP); a cap of 0 is none.
// error   relative 5e-7: below 1 a quotient of polynomials, z (z^6 + 378 z^4 + 17325 z^2 + 135135) / (28 z^6 + 3150 z^4 +
//         62370 z^2 + 135135), above it by exp(-2 z), of 3 + 4 z ulp; tanh itself may be off by more in WGSL
// source  Gemma Team 2024, arXiv:2408.00118; the quotient is Lambert's continued fraction, cut after 13
override CAP: f32 = 0.0;

fn capped4(x: vec4f) -> vec4f {
  if (CAP == 0.0) {
    return x;
  }
  let z = abs(x) / CAP;
  let s = min(z * z, vec4f(1.0));
  let low = z * (135135.0 + s * (17325.0 + s * (378.0 + s))) / (135135.0 + s * (62370.0 + s * (3150.0 + s * 28.0)));
  let e = exp(-2.0 * z);
  return sign(x) * CAP * select((1.0 - e) / (1.0 + e), low, z < vec4f(1.0));
}

fn capped(x: f32) -> f32 {
  if (CAP == 0.0) {
    return x;
  }
  return capped4(vec4f(x)).x;
}
