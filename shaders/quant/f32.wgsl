// F32: IEEE single precision. A row may have any length; elements past its end count as zero.
// uses    lib/by_element.wgsl
// source  IEEE 754-2019, binary32
fn element(row: u32, i: u32) -> f32 {
  return select(0.0, bitcast<f32>(w[row * N_IN + min(i, N_IN - 1u)]), i < N_IN);
}
