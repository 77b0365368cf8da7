// Q4_0 in the file: 18 bytes, f16 d, 16 bytes of nibbles: byte j holds elements j (low) and j + 16 (high).
// uses    lib/bytes.wgsl keep/<F>_1.wgsl
const BLOCK_BYTES = 18u;
const WORDS = 1u;

fn move_words(at: u32, element: u32, to: u32, lane: u32) {
  let first = (at + 2u) / 4u;
  let odd = ((at + 2u) & 2u) != 0u;
  var low = raw[first];
  // repeat quarter in 0..4
  {
    let high = raw[first + {quarter}u + 1u];
    q[to + ({quarter}u ^ lane)] = word_across(low, high, odd) ^ 0x80000000u;
    low = high;
  }
  // end
}

fn move_scales(at: u32, cell: u32) {
  keep_scales(cell, load_half(at));
}
