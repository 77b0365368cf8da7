// quad: each of four neighbouring invocations loads one quarter of 32 packed activations and gets the others' from
// them.
// uses    share/quad.wgsl
fn packed(at: u32, lane: u32) -> Packed {
  let a = vec4i(x[at + lane]);
  let b = vec4i(x[at + 4u + lane]);
  return Packed(
    a, b, quadSwapX(a), quadSwapX(b), quadSwapY(a), quadSwapY(b), quadSwapDiagonal(a), quadSwapDiagonal(b),
    x[at + 8u]);
}
