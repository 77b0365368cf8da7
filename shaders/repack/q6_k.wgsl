// Q6_K in the file: 210 bytes. Of each 128 elements 64 bytes of nibbles (32 low and 32 high of elements 0 … 31 and
// 64 … 95, then of the others), all of these first; then for each 128 elements 32 bytes with two bits of elements
// j, 32 + j, 64 + j, 96 + j; then 16 scales; then f16 d.
// uses    keep/<F>_super.wgsl lib/signed_scales.wgsl lib/turned.wgsl
const SUPER_BYTES = 210u;
const HIGH = 2u;

fn pair(at: u32) -> u32 {
  return load_word(at + 206u) >> 16u;
}

fn small(at: u32, sub: u32) -> u32 {
  return load_word(at + 192u + 2u * sub) & 0xffffu;
}

fn six(at: u32, sub: u32, j: u32) -> u32 {
  let nibbles = load_word(at + 64u * (sub / 4u) + 32u * (sub % 2u) + j) >> (4u * (sub / 2u % 2u));
  let bits = load_word(at + 128u + 32u * (sub / 4u) + j) >> (2u * (sub % 4u));
  return (nibbles & 0x0f0f0f0fu) | ((bits & 0x03030303u) << 4u);
}

fn move_cell(at: u32, sub: u32, cell: u32, lane: u32) {
  var high = vec2u(0u);
  // repeat quarter in 0..4
  {
    let a = six(at, sub, 4u * {quarter}u);
    let b = six(at, sub, 16u + 4u * {quarter}u) << 2u;
    let slot = {quarter}u ^ lane;
    q[4u * cell + slot] = ((a & 0x0f0f0f0fu) | (b & 0xf0f0f0f0u)) ^ 0x80000000u;
    high[slot / 2u] |= turn((a & 0x30303030u) | (b & 0x0c0c0c0cu), slot);
  }
  // end
  keep_high(cell, 0u, high.x);
  keep_high(cell, 1u, high.y);
}
