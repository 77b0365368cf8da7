// by_element: weights for types without blocks, whose part defines `element(row, i)` for one weight.
// uses    lib/weights32.wgsl
fn four(row: u32, i: u32) -> vec4f {
  return vec4f(element(row, i), element(row, i + 1u), element(row, i + 2u), element(row, i + 3u));
}

fn weights(row: u32, group: u32) -> Weights32 {
  let i = group * 32u;
  return Weights32(
    four(row, i), four(row, i + 4u), four(row, i + 8u), four(row, i + 12u),
    four(row, i + 16u), four(row, i + 20u), four(row, i + 24u), four(row, i + 28u));
}
