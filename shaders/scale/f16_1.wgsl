// f16_1: one f16 scale a cell, as the file has it: those of two neighbouring cells are a word, the first in its low
// half. An invocation's cells are all even or all odd.
@group(0) @binding(1) var<storage, read>       s: array<u32>;

fn scales_of(cell: u32) -> vec2f {
  return vec2f(unpack2x16float(s[cell / 2u] >> (16u * (cell & 1u))).x, 0.0);
}
