// six_minima: the scales of Q4_K and Q5_K. The small ones are a byte each, below 64, the scale in the lower one. What
// comes out is exact.
alias Scales = vec2f;  // d * scale, - dmin * minimum

fn dm_of(pair: vec2f, small: u32) -> Scales {
  return pair * vec2f(vec2i(vec2u(small) & vec2u(0xff0000u, 0xff000000u))) * vec2f(0x1p-16, -0x1p-24);
}
