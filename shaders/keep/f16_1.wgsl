// f16_1: keep one f16 scale a cell as it is: half a word, whose other half another invocation writes, or another
// piece.
@group(0) @binding(3) var<storage, read_write> s: array<atomic<u32>>;

fn keep_scales(cell: u32, halves: u32) {
  let shift = 16u * (cell & 1u);
  atomicAnd(&s[cell / 2u], 0xffff0000u >> shift);
  atomicOr(&s[cell / 2u], (halves & 0xffffu) << shift);
}
