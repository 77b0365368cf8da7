// Q4_0: sum of weight * q = d * (sum of nibble * q - 8 * sum of q), for two tokens.
fn weighted(sum: vec2f, dm: vec2f, sums: vec2f) -> vec2f {
  return dm.x * (sum - 8.0 * sums);
}
