// six_minima: the scales of Q4_K and Q5_K. The small ones are a byte each, the scale in the lower one; exact.
alias Scales = vec2f;  // d * scale, - dmin * minimum

fn dm_of(pair: vec2f, small: u32) -> Scales {
  return pair * vec2f(f32(small & 0xffu), -f32(small >> 8u));
}
