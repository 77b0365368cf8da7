// Q8_0 in the file: 34 bytes, f16 d, 32 signed bytes.
// uses    lib/bytes.wgsl keep/<F>_1.wgsl
const BLOCK_BYTES = 34u;
const WORDS = 2u;

fn move_words(at: u32, element: u32, to: u32, lane: u32) {
  let first = (at + 2u) / 4u;
  let odd = ((at + 2u) & 2u) != 0u;
  var low = raw[first];
  // repeat i in 0..2
  // repeat quarter in 0..4
  {
    let high = raw[first + 4u * {i}u + {quarter}u + 1u];
    q[to + 4u * {i}u + ({quarter}u ^ lane)] = word_across(low, high, odd) ^ 0x00808080u;
    low = high;
  }
  // end
  // end
}

fn move_scales(at: u32, cell: u32) {
  keep_scales(cell, load_half(at));
}
