// super_file: blocks of 32 within super-blocks of 256. A part says how many bytes one of these has in the file
// (SUPER_BYTES), how many words of high bits a cell (HIGH), where d and dmin are (pair), what 16 bits a block has for
// scales (small), and moves the weights of one block (move_cell), its high bits through keep_high. `at` is the
// super-block's first byte, `sub` the block's number in it.
// uses    lib/unaligned.wgsl
@group(0) @binding(3) var<storage, read_write> s: array<u32>;
const BLOCK_BYTES = 0u;  // what move_words is given is the byte where the row starts
const WORDS = 1u;        // … and four times the cell

fn move_words(row: u32, element: u32, to: u32, lane: u32) {
  let at = row + element / 256u * SUPER_BYTES;
  let sub = element / 32u % 8u;
  keep_small(at, sub, to / 4u);
  move_cell(at, sub, to / 4u, lane);
}

fn move_scales(at: u32, cell: u32) {
}
