// Q2_K in the file: 84 bytes, 16 bytes of scale (low half) and minimum, 64 bytes, of each 128 elements 32 with two
// bits of elements j, 32 + j, 64 + j, 96 + j, f16 d, f16 dmin.
// uses    keep/f16_super.wgsl lib/turned.wgsl
const SUPER_BYTES = 84u;
const HIGH = 0u;

fn pair(at: u32) -> u32 {
  return load_word(at + 80u);
}

fn small(at: u32, sub: u32) -> u32 {
  return load_word(at + 2u * sub) & 0xffffu;
}

fn move_cell(at: u32, sub: u32, cell: u32, lane: u32) {
  let first = at + 16u + 32u * (sub / 4u);
  var bits = vec2u(0u);
  // repeat quarter in 0..4
  {
    let slot = {quarter}u ^ lane;
    let a = (load_word(first + 4u * {quarter}u) >> (2u * (sub % 4u))) & 0x03030303u;
    let b = (load_word(first + 16u + 4u * {quarter}u) >> (2u * (sub % 4u))) & 0x03030303u;
    bits[slot / 2u] |= turn((a << 2u) | (b << 4u), slot);
  }
  // end
  q[2u * cell] = bits.x;
  q[2u * cell + 1u] = bits.y;
}
