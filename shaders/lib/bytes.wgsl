// bytes: words and halves of `raw` (array<u32>) at byte positions that are multiples of 2.
// Blocks of 18 or 34 bytes start on a half word; a word there straddles two.
fn load_half(byte: u32) -> u32 {
  let word = raw[byte / 4u];
  return select(word & 0xffffu, word >> 16u, (byte & 2u) != 0u);
}

fn load_word(byte: u32) -> u32 {
  let low = raw[byte / 4u];
  if ((byte & 2u) == 0u) {
    return low;
  }
  return (low >> 16u) | (raw[byte / 4u + 1u] << 16u);
}
