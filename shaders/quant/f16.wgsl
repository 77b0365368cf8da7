// F16: IEEE half precision. A row may have any length; elements past its end count as zero.
// uses    lib/weights32.wgsl
// source  IEEE 754-2019, binary16
fn element(row: u32, i: u32) -> f32 {
  let at = row * N_IN + min(i, N_IN - 1u);
  let pair = unpack2x16float(w[at / 2u]);
  return select(0.0, select(pair.x, pair.y, (at & 1u) != 0u), i < N_IN);
}

fn four(row: u32, i: u32) -> vec4f {
  return vec4f(element(row, i), element(row, i + 1u), element(row, i + 2u), element(row, i + 3u));
}

fn weights(row: u32, group: u32) -> Weights32 {
  let i = group * 32u;
  return Weights32(
    four(row, i), four(row, i + 4u), four(row, i + 8u), four(row, i + 12u),
    four(row, i + 16u), four(row, i + 20u), four(row, i + 24u), four(row, i + 28u));
}
