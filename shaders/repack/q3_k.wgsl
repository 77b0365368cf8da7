// Q3_K in the file: 110 bytes, 32 bytes whose bit i is the third of elements 32 i + j, 64 bytes with the two lower
// bits, 12 bytes of 16 scales, f16 d.
// uses    keep/f16_super.wgsl lib/five_file.wgsl lib/two_file.wgsl
const SUPER_BYTES = 110u;
const HIGH = 1u;

fn pair(at: u32) -> u32 {
  return load_word(at + 106u) >> 16u;
}

fn scale(at: u32, i: u32) -> u32 {
  let low = load_byte(at + 96u + i % 8u) >> (4u * (i / 8u));
  let high = load_byte(at + 104u + i % 4u) >> (2u * (i / 4u));
  return (low & 0xfu) | ((high & 3u) << 4u);
}

fn small(at: u32, sub: u32) -> u32 {
  return scale(at, 2u * sub) | (scale(at, 2u * sub + 1u) << 8u);
}

fn move_cell(at: u32, sub: u32, cell: u32, lane: u32) {
  var low = vec2u(0u);
  var high = 0u;
  // repeat quarter in 0..4
  {
    let slot = {quarter}u ^ lane;
    let third_a = (load_word(at + 4u * {quarter}u) >> sub) & 0x01010101u;
    let third_b = (load_word(at + 16u + 4u * {quarter}u) >> sub) & 0x01010101u;
    let a = two(at + 32u, sub, 4u * {quarter}u);
    let b = two(at + 32u, sub, 16u + 4u * {quarter}u) | (third_b << 2u);
    low[slot / 2u] |= turn((a << 2u) | ((b & 0x06060606u) << 3u), slot);
    high |= five_high(third_a << 4u, b, slot);
  }
  // end
  q[2u * cell] = low.x;
  q[2u * cell + 1u] = low.y;
  keep_high(cell, 0u, high);
}
