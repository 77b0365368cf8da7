// rms: the scale of a normalised row from the partial sums of squares that its producers left.
fn rms_scale(t: u32, lane: u32) -> f32 {
  var squares = 0.0;
  for (var i = lane % SHARERS; i < N_PARTIALS; i += SHARERS) {
    squares += partials[t * N_PARTIALS + i];
  }
  return inverseSqrt(share_sum(squares) / f32(N_EMBD) + EPS);
}
