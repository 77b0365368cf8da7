// MXFP4: weight = 2^(e - 128) * number, the numbers in a table: 0, 1, 2, 3, 4, 6, 8, 12, and the same negative.
//   q   a cell is vec4u, see lib/numbers.wgsl
//   s   the upper half of the f32 that the power is; those of two neighbouring cells are a word, the first in its low
//       half
// uses    lib/numbers.wgsl
// source  block_mxfp4, kvalues_mxfp4 in https://github.com/ggml-org/llama.cpp/blob/80fb11ac73e66d89eae2c6a91d8a77428fa733ed/ggml/src/ggml-common.h
@group(0) @binding(0) var<storage, read>       q: array<vec4u>;
@group(0) @binding(1) var<storage, read>       s: array<u32>;

fn scales_of(cell: u32) -> vec2f {
  let word = s[cell / 2u];
  return vec2f(bitcast<f32>(select(word * 0x10000u, word & 0xffff0000u, (cell & 1u) != 0u)), 0.0);
}

fn number(place: vec4f) -> vec4f {
  let negative = floor(place * 0.125);  // 0 or 1; a comparison costs more
  let i = place - 8.0 * negative;
  let size = (2.5 * i - 8.0) + (0.5 * abs(i - 4.0) + abs(i - 6.0));
  return size - 2.0 * negative * size;
}
