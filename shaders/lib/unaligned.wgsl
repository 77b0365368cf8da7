// unaligned: bytes and words of `raw` (array<u32>) at any byte position.
fn load_byte(byte: u32) -> u32 {
  return (raw[byte / 4u] >> (8u * (byte & 3u))) & 0xffu;
}

fn load_word(byte: u32) -> u32 {
  let shift = 8u * (byte & 3u);
  let low = raw[byte / 4u];
  return select((low >> shift) | (raw[byte / 4u + 1u] << (32u - shift)), low, shift == 0u);
}
