// rms: the scale of a normalised row from the partial sums of squares that its producers left; 1 where the rows are
// NORMED already.
override NORMED: bool = false;

fn rms_scale(t: u32, lane: u32) -> f32 {
  if (NORMED) {
    return 1.0;
  }
  var squares = 0.0;
  for (var i = lane % SHARERS; i < N_PARTIALS; i += SHARERS) {
    squares += partials[t * N_PARTIALS + i];
  }
  return inverseSqrt(share_sum(squares) / f32(N_EMBD) + EPS);
}
