// Q4_1: sum of weight * q = d * sum of nibble * q + m * sum of q, for two tokens.
fn weighted(sum: vec2f, dm: vec2f, sums: vec2f) -> vec2f {
  return dm.x * sum + dm.y * sums;
}
