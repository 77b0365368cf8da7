// signed_scales: the scales of Q6_K. The small ones are signed bytes, the first half's in the lower one; exact.
alias Scales = vec2f;  // d * scale of the first and of the second half

fn dm_of(pair: vec2f, small: u32) -> Scales {
  return pair.x * vec2f(bitcast<vec2i>(vec2u(small) << vec2u(24u, 16u)) >> vec2u(24u));
}
