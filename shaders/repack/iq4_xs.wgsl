// IQ4_XS in the file: 136 bytes, f16 d, 2 bytes with the two high bits of eight scales, 4 bytes with their four low
// ones, 128 bytes of nibbles: byte 16 i + j holds elements 32 i + j (low) and 32 i + 16 + j (high).
// uses    keep/f16_super.wgsl
const SUPER_BYTES = 136u;
const HIGH = 0u;

fn pair(at: u32) -> u32 {
  return load_word(at) & 0xffffu;
}

fn small(at: u32, sub: u32) -> u32 {
  let low = load_word(at + 4u) >> (4u * sub);
  let high = load_word(at) >> (16u + 2u * sub);
  return (low & 0xfu) | ((high & 3u) << 4u);
}

fn move_cell(at: u32, sub: u32, cell: u32, lane: u32) {
  // repeat quarter in 0..4
  q[4u * cell + ({quarter}u ^ lane)] = load_word(at + 8u + 16u * sub + 4u * {quarter}u) ^ 0x80000000u;
  // end
}
