// MXFP4 in the file: 17 bytes, e, 16 bytes of nibbles: byte j holds elements j (low) and j + 16 (high).
// uses    lib/unaligned.wgsl keep/f16_1.wgsl
const BLOCK_BYTES = 17u;
const WORDS = 1u;

fn move_words(at: u32, element: u32, to: u32, lane: u32) {
  // repeat quarter in 0..4
  q[to + ({quarter}u ^ lane)] = load_word(at + 1u + 4u * {quarter}u) ^ 0x80000000u;
  // end
}

// 2^(e - 128); below 2^-126 it is a subnormal number.
fn move_scales(at: u32, cell: u32) {
  let e = load_byte(at);
  keep_scales(cell, select((e - 1u) << 7u, 0x20u << e, e < 2u));
}
