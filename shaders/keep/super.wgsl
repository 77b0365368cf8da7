// super: keep what scale/super.wgsl reads. A part says how many bytes a super-block has in the file (SUPER_BYTES), how
// many words of high bits a cell (HIGH), where d and dmin are (pair), what 16 bits a block has for scales (small), and
// moves the weights of one block (move_cell); `at` is the super-block's first byte, `sub` the block's number in it.
// uses    lib/unaligned.wgsl
@group(0) @binding(3) var<storage, read_write> s: array<u32>;
const BLOCK_BYTES = 0u;  // what is handed in is the byte where the row starts
const WORDS = 1u;        // … and four times the cell

fn move_words(row: u32, element: u32, to: u32, lane: u32) {
  let at = row + element / 256u * SUPER_BYTES;
  let sub = element / 32u % 8u;
  let cell = to / 4u;
  let first = cell / 256u * (160u + 256u * HIGH);
  if (sub == 0u) {
    s[first + cell % 32u] = pair(at);
  }
  if (sub % 2u == 0u) {
    s[first + 32u + sub / 2u * 32u + cell % 32u] = small(at, sub) | (small(at, sub + 1u) << 16u);
  }
  move_cell(at, sub, cell, lane);
}

fn keep_high(cell: u32, i: u32, bits: u32) {
  s[cell / 256u * (160u + 256u * HIGH) + 160u + HIGH * (cell % 256u) + i] = bits;
}

fn move_scales(at: u32, cell: u32) {
}
