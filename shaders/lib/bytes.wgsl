// bytes: words and halves of `raw` (array<u32>) at byte positions that are multiples of 2.
// Blocks of 18 or 34 bytes start on a half word; a word there straddles two.
fn load_half(byte: u32) -> u32 {
  let word = raw[byte / 4u];
  return select(word & 0xffffu, word >> 16u, (byte & 2u) != 0u);
}

// Of two neighbouring words of `raw`, the one that begins with the first or, when `odd`, in its middle.
fn word_across(low: u32, high: u32, odd: bool) -> u32 {
  return select(low, (low >> 16u) | (high << 16u), odd);
}
