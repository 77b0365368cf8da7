// Q4_K in the file: 144 bytes, f16 d, f16 dmin, 12 bytes of scales and minima, 128 bytes of nibbles: byte 32 i + j
// holds elements 64 i + j (low) and 64 i + 32 + j (high).
// uses    keep/<F>_super.wgsl lib/six_minima.wgsl lib/six_minima_file.wgsl
const SUPER_BYTES = 144u;
const HIGH = 0u;

fn move_cell(at: u32, sub: u32, cell: u32, lane: u32) {
  let first = at + 16u + 32u * (sub / 2u);
  let shift = 4u * (sub % 2u);
  // repeat quarter in 0..4
  {
    let a = (load_word(first + 4u * {quarter}u) >> shift) & 0x0f0f0f0fu;
    let b = (load_word(first + 16u + 4u * {quarter}u) >> shift) & 0x0f0f0f0fu;
    q[4u * cell + ({quarter}u ^ lane)] = (a | (b << 4u)) ^ 0x80000000u;
  }
  // end
}
