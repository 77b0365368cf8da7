// Q4_1 in the file: 20 bytes, f16 d, f16 m, 16 bytes of nibbles: byte j holds elements j (low) and j + 16 (high).
// uses    lib/bytes.wgsl keep/<F>_2.wgsl
const BLOCK_BYTES = 20u;
const WORDS = 1u;

fn move_words(at: u32, element: u32, to: u32, lane: u32) {
  // repeat quarter in 0..4
  q[to + ({quarter}u ^ lane)] = raw[at / 4u + 1u + {quarter}u] ^ 0x80000000u;
  // end
}

fn move_scales(at: u32, cell: u32) {
  keep_scales(cell, raw[at / 4u]);
}
