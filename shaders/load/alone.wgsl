// alone: every invocation loads all 32 activations itself.
// uses    lib/activations.wgsl share/alone.wgsl
fn activations(at: u32, lane: u32) -> Activations {
  let a0 = x[at + lane];
  let b0 = x[at + 4u + lane];
  let a1 = x[at + (lane ^ 1u)];
  let b1 = x[at + 4u + (lane ^ 1u)];
  let a2 = x[at + (lane ^ 2u)];
  let b2 = x[at + 4u + (lane ^ 2u)];
  let a3 = x[at + (lane ^ 3u)];
  let b3 = x[at + 4u + (lane ^ 3u)];
  return Activations(
    a0 * SCALE_A, b0 * SCALE_B, a1 * SCALE_A, b1 * SCALE_B, a2 * SCALE_A, b2 * SCALE_B, a3 * SCALE_A, b3 * SCALE_B,
    (offsets(a0, b0) + offsets(a1, b1)) + (offsets(a2, b2) + offsets(a3, b3)));
}
