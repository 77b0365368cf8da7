// cap: soft capping, CAP * tanh(x / CAP); a cap of 0 is none.
// error   1e-6 * CAP: tanh z by exp(-2 z), of 3 + 4 z ulp and 2.5 more for 2 z (at most 3 ulp of 1 in the result), and
//         a quotient of 4 ulp; nothing without a cap
// source  Gemma Team 2024, arXiv:2408.00118
override CAP: f32 = 0.0;

fn capped(x: f32) -> f32 {
  if (CAP == 0.0) {
    return x;
  }
  let e = exp(-2.0 * abs(x) / CAP);  // tanh of large arguments is infinite by infinite on some adapters
  return sign(x) * CAP * (1.0 - e) / (1.0 + e);
}

fn capped4(x: vec4f) -> vec4f {
  if (CAP == 0.0) {
    return x;
  }
  let e = exp(-2.0 * abs(x) / CAP);
  return sign(x) * CAP * (1.0 - e) / (1.0 + e);
}
