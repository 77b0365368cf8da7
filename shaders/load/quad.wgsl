// quad: each of four neighbouring invocations loads one quarter of 32 activations and gets the others' from them.
// uses    lib/activations.wgsl share/quad.wgsl
fn activations(at: u32, lane: u32) -> Activations {
  let a = x[at + lane];
  let b = x[at + 4u + lane];
  let sums = offsets(a, b);
  let za = a * SCALE_A;
  let zb = b * SCALE_B;
  return Activations(
    za, zb, quadSwapX(za), quadSwapX(zb), quadSwapY(za), quadSwapY(zb), quadSwapDiagonal(za), quadSwapDiagonal(zb),
    vec2f(share_sum(sums.x), share_sum(sums.y)));
}
