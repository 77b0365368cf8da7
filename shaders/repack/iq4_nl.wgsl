// IQ4_NL in the file: 18 bytes, f16 d, 16 bytes of nibbles: byte j holds elements j (low) and j + 16 (high).
// uses    lib/bytes.wgsl lib/unaligned.wgsl keep/<F>_1.wgsl
const BLOCK_BYTES = 18u;
const WORDS = 1u;

fn move_words(at: u32, element: u32, to: u32, lane: u32) {
  // repeat quarter in 0..4
  q[to + ({quarter}u ^ lane)] = load_word(at + 2u + 4u * {quarter}u) ^ 0x80000000u;
  // end
}

fn move_scales(at: u32, cell: u32) {
  keep_scales(cell, load_half(at));
}
