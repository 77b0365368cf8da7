// Q4_0: weight = d * (nibble - 8).
//   q   a cell is vec4u, see lib/nibbles.wgsl
//   s   d
// uses    scale/<F>_1.wgsl lib/cell.wgsl lib/nibbles.wgsl
// source  block_q4_0 in https://github.com/ggml-org/llama.cpp/blob/80fb11ac73e66d89eae2c6a91d8a77428fa733ed/ggml/src/ggml-common.h
@group(0) @binding(0) var<storage, read>       q: array<vec4u>;

fn offsets(a: vec4f, b: vec4f) -> vec2f {
  return vec2f(-8.0 * (((a.x + a.y) + (a.z + a.w)) + ((b.x + b.y) + b.z)), 0.0);
}

fn scaled(sum: f32, dm: vec2f, sums: vec2f) -> f32 {
  return dm.x * (sum + sums.x);
}

fn values(a: vec4f, b: vec4f, dm: vec2f) -> Quarter {
  return Quarter((a * SCALE_A - 8.0) * dm.x, (b * SCALE_B - vec4f(8.0, 8.0, 8.0, 0.0)) * dm.x);
}
