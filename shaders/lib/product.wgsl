// product: a cell times 32 activations.
// uses    lib/activations.wgsl lib/cell.wgsl
fn product(w: Words, z: Activations) -> f32 {
  let low = (dot(a0(w), z.a0) + dot(b0(w), z.b0)) + (dot(a1(w), z.a1) + dot(b1(w), z.b1));
  let high = (dot(a2(w), z.a2) + dot(b2(w), z.b2)) + (dot(a3(w), z.a3) + dot(b3(w), z.b3));
  return scaled(low + high, w.dm, z.sums);
}
