// Q5_K in the file: 176 bytes, f16 d, f16 dmin, 12 bytes of scales and minima, 32 bytes whose bit i is the fifth of
// elements 32 i + j, 128 bytes of nibbles: byte 32 i + j holds elements 64 i + j (low) and 64 i + 32 + j (high).
// uses    keep/<F>_super.wgsl lib/six_minima.wgsl lib/six_minima_file.wgsl lib/five_file.wgsl
const SUPER_BYTES = 176u;
const HIGH = 1u;

fn numbers(at: u32, sub: u32, j: u32) -> u32 {
  let nibbles = load_word(at + 48u + 32u * (sub / 2u) + j) >> (4u * (sub % 2u));
  let fifths = load_word(at + 16u + j) >> sub;
  return (nibbles & 0x0f0f0f0fu) | ((fifths & 0x01010101u) << 4u);
}

fn move_cell(at: u32, sub: u32, cell: u32, lane: u32) {
  var high = 0u;
  // repeat quarter in 0..4
  {
    let a = numbers(at, sub, 4u * {quarter}u);
    let b = numbers(at, sub, 16u + 4u * {quarter}u);
    let slot = {quarter}u ^ lane;
    q[4u * cell + slot] = five_low(a, b);
    high |= five_high(a, b, slot);
  }
  // end
  keep_high(cell, 0u, high);
}
