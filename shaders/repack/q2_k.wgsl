// Q2_K in the file: 84 bytes, 16 bytes of scale (low half) and minimum, 64 bytes of weights, f16 d, f16 dmin.
// uses    keep/f16_super.wgsl lib/turned.wgsl lib/two_file.wgsl
const SUPER_BYTES = 84u;
const HIGH = 0u;

fn pair(at: u32) -> u32 {
  return load_word(at + 80u);
}

fn small(at: u32, sub: u32) -> u32 {
  return load_word(at + 2u * sub) & 0xffffu;
}

fn move_cell(at: u32, sub: u32, cell: u32, lane: u32) {
  var bits = vec2u(0u);
  // repeat quarter in 0..4
  {
    let slot = {quarter}u ^ lane;
    let a = two(at + 16u, sub, 4u * {quarter}u);
    let b = two(at + 16u, sub, 16u + 4u * {quarter}u);
    bits[slot / 2u] |= turn((a << 2u) | (b << 4u), slot);
  }
  // end
  q[2u * cell] = bits.x;
  q[2u * cell + 1u] = bits.y;
}
