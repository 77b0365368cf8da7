// Q4_K: weight = d * scale * nibble - dmin * minimum, scale and minimum of six bits for each block of 32.
//   q   a cell is vec4u, see lib/nibbles.wgsl
//   s   see scale/<F>_super.wgsl and lib/six_minima.wgsl
// uses    scale/<F>_super.wgsl lib/six_minima.wgsl lib/cell.wgsl lib/nibbles.wgsl
// source  block_q4_K in https://github.com/ggml-org/llama.cpp/blob/80fb11ac73e66d89eae2c6a91d8a77428fa733ed/ggml/src/ggml-common.h
@group(0) @binding(0) var<storage, read>       q: array<vec4u>;
const HIGH = 0u;

fn offsets(a: vec4f, b: vec4f) -> vec2f {
  return vec2f(8.0 * b.w, ((a.x + a.y) + (a.z + a.w)) + ((b.x + b.y) + (b.z + b.w)));
}

fn scaled(sum: f32, dm: vec2f, sums: vec2f) -> f32 {
  return dm.x * (sum + sums.x) + dm.y * sums.y;
}

fn values(a: vec4f, b: vec4f, dm: vec2f) -> Quarter {
  return Quarter(a * SCALE_A * dm.x + dm.y, (b * SCALE_B + vec4f(0.0, 0.0, 0.0, 8.0)) * dm.x + dm.y);
}
