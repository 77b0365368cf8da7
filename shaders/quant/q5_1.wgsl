// Q5_1: weight = d * q + m, q of five bits.
//   q   a cell is vec4u: four bits of each weight, see lib/five.wgsl
//   s   a word of fifth bits, and one of d and m as f16
// uses    lib/cell.wgsl lib/five.wgsl lib/five_minima.wgsl
// source  block_q5_1 in https://github.com/ggml-org/llama.cpp/blob/80fb11ac73e66d89eae2c6a91d8a77428fa733ed/ggml/src/ggml-common.h
@group(0) @binding(0) var<storage, read>       q: array<vec4u>;
@group(0) @binding(1) var<storage, read>       s: array<vec2u>;

fn words(cell: u32) -> Words {
  let beside = s[cell];
  return five(q[cell], beside.x, unpack2x16float(beside.y));
}
