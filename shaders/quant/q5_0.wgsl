// Q5_0: weight = d * (q - 16), q of five bits.
//   q   a cell is vec4u: four bits of each weight, see lib/five.wgsl
//   s   a word of fifth bits and d, as f32
// uses    lib/cell.wgsl lib/five.wgsl
// source  block_q5_0 in https://github.com/ggml-org/llama.cpp/blob/80fb11ac73e66d89eae2c6a91d8a77428fa733ed/ggml/src/ggml-common.h
@group(0) @binding(0) var<storage, read>       q: array<vec4u>;
@group(0) @binding(1) var<storage, read>       s: array<vec2u>;

fn words(cell: u32) -> Words {
  let beside = s[cell];
  return five(q[cell], beside.x, vec2f(bitcast<f32>(beside.y), 0.0));
}

fn offsets(a: vec4f, b: vec4f) -> vec2f {
  return vec2f(-16.0 * (((a.x + a.y) + (a.z + a.w)) + ((b.x + b.y) + b.z)), 0.0);
}

fn scaled(sum: f32, dm: vec2f, sums: vec2f) -> f32 {
  return dm.x * (sum + sums.x);
}

fn values(a: vec4f, b: vec4f, dm: vec2f) -> Quarter {
  return Quarter((a * SCALE_A - 16.0) * dm.x, (b * SCALE_B - vec4f(16.0, 16.0, 16.0, 0.0)) * dm.x);
}
