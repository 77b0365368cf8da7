// Q2_K: weight = d * scale * q - dmin * minimum, q of two bits, scale and minimum of four for each 16.
//   q   a cell is vec2u, see lib/turned.wgsl: in word s, of quarter s ^ lane, bits 2 and 3 of byte i are element
//       4 quarter + i, bits 4 and 5 element 16 + 4 quarter + i
//   s   see scale/f16_super.wgsl; the small ones are scale and minimum of the first and of the second 16
// uses    scale/f16_super.wgsl lib/cell.wgsl lib/turned.wgsl
// source  block_q2_K in https://github.com/ggml-org/llama.cpp/blob/80fb11ac73e66d89eae2c6a91d8a77428fa733ed/ggml/src/ggml-common.h
@group(0) @binding(0) var<storage, read>       q: array<vec2u>;
const HIGH = 0u;
const SCALE_A = vec4f(0x1p-2, 0x1p-10, 0x1p-18, 0x1p-26);
const SCALE_B = vec4f(0x1p-4, 0x1p-12, 0x1p-20, 0x1p-28);

alias Scales = vec4f;  // d * scale of the first and of the second half, - dmin * minimum of them

fn dm_of(pair: vec2f, small: u32) -> Scales {
  let four = vec4f(vec4u(small) & vec4u(0xf0000u, 0xf000000u, 0xf00000u, 0xf0000000u));
  return pair.xxyy * four * vec4f(0x1p-16, 0x1p-24, -0x1p-20, -0x1p-28);
}

struct Words {
  v: vec4i, dm: Scales,
}

fn words(cell: u32) -> Words {
  return Words(turned(q[cell]), scales_of(cell));
}

// repeat i in 0..4
fn a{i}(w: Words) -> vec4f {
  return w.dm.x * vec4f(vec4i(w.v[{i}]) & vec4i(0xc, 0xc00, 0xc0000, 0xc000000));
}

fn b{i}(w: Words) -> vec4f {
  return w.dm.y * vec4f(vec4i(w.v[{i}]) & vec4i(0x30, 0x3000, 0x300000, 0x30000000));
}

// end
fn offsets(a: vec4f, b: vec4f) -> vec2f {
  return vec2f((a.x + a.y) + (a.z + a.w), (b.x + b.y) + (b.z + b.w));
}

fn scaled(sum: f32, dm: Scales, sums: vec2f) -> f32 {
  return sum + (dm.z * sums.x + dm.w * sums.y);
}

fn values(a: vec4f, b: vec4f, dm: Scales) -> Quarter {
  return Quarter(a * SCALE_A + dm.z, b * SCALE_B + dm.w);
}
