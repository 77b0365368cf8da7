// five_file: from five-bit numbers in the bytes of words to what lib/five.wgsl reads. `a` and `b` have the numbers of
// the two halves of a quarter; `slot` is the word of the cell that they go to.
// uses    lib/unaligned.wgsl lib/turned.wgsl
fn five_low(a: u32, b: u32) -> u32 {
  return ((a & 0x0f0f0f0fu) | ((b << 3u) & 0xf0f0f0f0u)) ^ 0x80000000u;
}

fn five_high(a: u32, b: u32, slot: u32) -> u32 {
  return turn_pair((a & 0x10101010u) | ((b << 3u) & 0x08080808u), slot);
}

// The nibbles that the bytes of `nibbles` have in their low half, the one of byte k with bit k of `fifths`.
fn with_fifth(nibbles: u32, fifths: u32) -> u32 {
  return (nibbles & 0x0f0f0f0fu)
    | ((fifths & 1u) << 4u) | ((fifths & 2u) << 11u) | ((fifths & 4u) << 18u) | ((fifths & 8u) << 25u);
}

// A block of Q5_0 or Q5_1, its nibbles from byte `at` on: the low bits go to q[to…], the high ones come back.
fn five_block(fifths: u32, at: u32, to: u32, lane: u32) -> u32 {
  var high = 0u;
  // repeat quarter in 0..4
  {
    let nibbles = load_word(at + 4u * {quarter}u);
    let a = with_fifth(nibbles, fifths >> (4u * {quarter}u));
    let b = with_fifth(nibbles >> 4u, fifths >> (16u + 4u * {quarter}u));
    let slot = {quarter}u ^ lane;
    q[to + slot] = five_low(a, b);
    high |= five_high(a, b, slot);
  }
  // end
  return high;
}
