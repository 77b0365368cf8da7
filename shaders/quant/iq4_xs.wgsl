// IQ4_XS: weight = d * scale * number, the numbers in a table, a scale of six bits (minus 32) for each block of 32.
//   q   a cell is vec4u, see lib/numbers.wgsl
//   s   see scale/f16_super.wgsl; one small scale
// uses    scale/f16_super.wgsl lib/iq4.wgsl
// source  block_iq4_xs, kvalues_iq4nl in https://github.com/ggml-org/llama.cpp/blob/80fb11ac73e66d89eae2c6a91d8a77428fa733ed/ggml/src/ggml-common.h
@group(0) @binding(0) var<storage, read>       q: array<vec4u>;
const HIGH = 0u;

alias Scales = vec2f;  // d * scale, nothing

fn dm_of(pair: vec2f, small: u32) -> Scales {
  return vec2f(pair.x * (f32(small) * 0x1p-16 - 32.0), 0.0);
}
