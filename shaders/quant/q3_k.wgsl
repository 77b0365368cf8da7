// Q3_K: weight = d * scale * (q - 4), q of three bits, a scale of six (minus 32) for each 16.
//   q   a cell is vec2u, see lib/turned.wgsl: in word s, of quarter s ^ lane, bits 2 and 3 of byte i are the lower
//       two of element 4 quarter + i, bits 4 and 5 the upper two of element 16 + 4 quarter + i
//   s   see scale/f16_super.wgsl; small scales of the first and the second 16. The third bits are next to the others, 4
//       of the first and 3 of the second, see lib/turned.wgsl
// uses    scale/f16_super.wgsl lib/halves.wgsl lib/turned.wgsl
// source  block_q3_K in https://github.com/ggml-org/llama.cpp/blob/80fb11ac73e66d89eae2c6a91d8a77428fa733ed/ggml/src/ggml-common.h
@group(0) @binding(0) var<storage, read>       q: array<vec2u>;
const HIGH = 1u;
const SCALE_A = vec4f(0x1p-2, 0x1p-10, 0x1p-18, 0x1p-26);
const SCALE_B = vec4f(0x1p-3, 0x1p-11, 0x1p-19, 0x1p-27);
const ZERO_A = vec4f(4.0);
const ZERO_B = vec4f(4.0);

fn dm_of(pair: vec2f, small: u32) -> Scales {
  return pair.x * (vec2f(vec2i(vec2u(small) & vec2u(0xff0000u, 0xff000000u))) * vec2f(0x1p-16, 0x1p-24) - 32.0);
}

fn words(cell: u32) -> Words {
  return Words(turned(q[cell]), turned_pair(high_of(cell, 0u)), scales_of(cell));
}

// repeat i in 0..4
fn a{i}(w: Words) -> vec4f {
  let bits = vec4i(w.h[{i}]) & vec4i(0x10, 0x1000, 0x100000, 0x10000000);
  return w.dm.x * vec4f((vec4i(w.v[{i}]) & vec4i(0xc, 0xc00, 0xc0000, 0xc000000)) | bits);
}

fn b{i}(w: Words) -> vec4f {
  let bits = vec4i(w.h[{i}]) & vec4i(0x8, 0x800, 0x80000, 0x8000000);
  return w.dm.y * vec4f((vec4i(w.v[{i}]) & vec4i(0x30, 0x3000, 0x300000, 0x30000000)) | bits);
}

// end
