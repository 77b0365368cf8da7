// signed_scales: the scales of Q6_K. The small ones are signed bytes, the first half's in the lower one; exact.
fn dm_of(pair: vec2f, small: u32) -> vec2f {
  return pair.x * vec2f(vec2i(vec2u(small * 256u, small) & vec2u(0xff000000u))) * 0x1p-24;
}
