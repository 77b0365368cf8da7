// IQ4_NL: weight = d * number, the numbers in a table.
//   q   a cell is vec4u, see lib/numbers.wgsl
//   s   d
// uses    scale/<F>_1.wgsl lib/iq4.wgsl
// source  block_iq4_nl, kvalues_iq4nl in https://github.com/ggml-org/llama.cpp/blob/80fb11ac73e66d89eae2c6a91d8a77428fa733ed/ggml/src/ggml-common.h
@group(0) @binding(0) var<storage, read>       q: array<vec4u>;
