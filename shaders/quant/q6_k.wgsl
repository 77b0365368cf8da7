// Q6_K: weight = d * scale * (q - 32), q of six bits, a signed byte of scale for each 16.
//   q   a cell is vec4u: in word s, of quarter s ^ lane, byte i has the low nibble of element 4 quarter + i and the
//       high nibble of element 16 + 4 quarter + i, the top one with its sign bit flipped (minus 32)
//   s   see scale/<F>_super.wgsl and lib/signed_scales.wgsl; the high bits of each word's bytes, 4 and 5 of the first
//       element and 2 and 3 of the second, lie as lib/turned.wgsl says
// uses    scale/<F>_super.wgsl lib/signed_scales.wgsl lib/halves.wgsl lib/turned.wgsl
// source  block_q6_K in https://github.com/ggml-org/llama.cpp/blob/80fb11ac73e66d89eae2c6a91d8a77428fa733ed/ggml/src/ggml-common.h
@group(0) @binding(0) var<storage, read>       q: array<vec4u>;
const HIGH = 2u;
const SCALE_A = vec4f(0x1p0, 0x1p-8, 0x1p-16, 0x1p-24);
const SCALE_B = vec4f(0x1p-2, 0x1p-10, 0x1p-18, 0x1p-26);
const ZERO_A = vec4f(32.0);
const ZERO_B = vec4f(32.0, 32.0, 32.0, 0.0);

fn words(cell: u32) -> Words {
  let bits = turned(vec2u(high_of(cell, 0u), high_of(cell, 1u)));
  return Words(bitcast<vec4i>(q[cell]), bits, scales_of(cell));
}

// repeat i in 0..4
fn a{i}(w: Words) -> vec4f {
  let bits = vec4i(w.h[{i}]) & vec4i(0x30, 0x3000, 0x300000, 0x30000000);
  return w.dm.x * vec4f((vec4i(w.v[{i}]) & vec4i(0xf, 0xf00, 0xf0000, 0xf000000)) | bits);
}

fn b{i}(w: Words) -> vec4f {
  let bits = vec4i(w.h[{i}]) & vec4i(0xc, 0xc00, 0xc0000, 0xc000000);
  return w.dm.y * vec4f((vec4i(w.v[{i}]) & vec4i(0xf0, 0xf000, 0xf00000, bitcast<i32>(0xf0000000u))) | bits);
}

// end
