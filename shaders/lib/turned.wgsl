// turned: bits that the four words of a cell lack, packed: those of different words lie beside each other and are
// turned to the place where they are needed, to the left by multiplication, see lib/nibbles.wgsl. `turn` and
// `turn_pair` put them where `turned` and `turned_pair` look.
// Four bits of each byte, 2 to 5: two words, each with those of two words of the cell, the second ones four bits to
// the left, the last around to the first.
fn turned(bits: vec2u) -> vec4i {
  let other = (bits >> vec2u(4u)) | (bits * 0x10000000u);
  return bitcast<vec4i>(vec4u(bits.x, other.x, bits.y, other.y));
}

fn turn(bits: u32, slot: u32) -> u32 {
  return select(bits, (bits << 4u) | (bits >> 28u), (slot & 1u) != 0u);
}

// Two bits of each byte, 3 and 4: one word, with those of the second word of the cell two bits to the right, and those
// of the third and fourth so again four bits to the left, the last around to the first.
fn turned_pair(bits: u32) -> vec4i {
  let other = (bits >> 4u) | (bits * 0x10000000u);
  return bitcast<vec4i>(vec4u(bits, bits * 4u, other, other * 4u));
}

fn turn_pair(bits: u32, slot: u32) -> u32 {
  return turn(bits >> (2u * (slot & 1u)), slot / 2u);
}
