// Q5_K: weight = d * scale * q - dmin * minimum, q of five bits, scale and minimum of six for each block of 32.
//   q   a cell is vec4u: four bits of each weight, see lib/five.wgsl
//   s   see scale/<F>_super.wgsl and lib/six_minima.wgsl
// uses    scale/<F>_super.wgsl lib/six_minima.wgsl lib/cell.wgsl lib/five.wgsl lib/five_minima.wgsl
// source  block_q5_K in https://github.com/ggml-org/llama.cpp/blob/80fb11ac73e66d89eae2c6a91d8a77428fa733ed/ggml/src/ggml-common.h
@group(0) @binding(0) var<storage, read>       q: array<vec4u>;
const HIGH = 1u;

fn words(cell: u32) -> Words {
  return five(q[cell], high_of(cell, 0u), scales_of(cell));
}
