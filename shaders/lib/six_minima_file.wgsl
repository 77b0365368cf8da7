// six_minima_file: the scales of Q4_K and Q5_K in the file: d and dmin, then in 12 bytes eight scales and eight minima
// of six bits.
fn pair(at: u32) -> u32 {
  return load_word(at);
}

fn small(at: u32, sub: u32) -> u32 {
  let i = at + 4u + sub % 4u;
  let scale = load_byte(i);
  let minimum = load_byte(i + 4u);
  let more = load_byte(i + 8u);
  return select(
    (more & 0xfu) | ((scale >> 2u) & 0x30u) | ((more & 0xf0u) << 4u) | ((minimum << 6u) & 0x3000u),
    (scale & 0x3fu) | ((minimum & 0x3fu) << 8u), sub < 4u);
}
