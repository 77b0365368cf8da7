// F16: IEEE half precision. A row may have any length; elements past its end count as zero.
// uses    lib/by_element.wgsl
// source  IEEE 754-2019, binary16
fn element(row: u32, i: u32) -> f32 {
  let at = row * N_IN + min(i, N_IN - 1u);
  let pair = unpack2x16float(w[at / 2u]);
  return select(0.0, select(pair.x, pair.y, (at & 1u) != 0u), i < N_IN);
}
