// Q5_1 in the file: 24 bytes, f16 d, f16 m, a word with bit i the fifth of element i, 16 bytes of nibbles: byte j
// holds elements j (low) and j + 16 (high).
// uses    lib/five_file.wgsl
@group(0) @binding(3) var<storage, read_write> s: array<u32>;
const BLOCK_BYTES = 24u;
const WORDS = 1u;

fn move_words(at: u32, element: u32, to: u32, lane: u32) {
  s[to / 2u] = five_block(raw[at / 4u + 1u], at + 8u, to, lane);
}

fn move_scales(at: u32, cell: u32) {
  s[2u * cell + 1u] = raw[at / 4u];
}
