// Q4_1: 32 weights in 20 bytes; weight = d * nibble + m.
//   bytes 0…1   d   f16 scale
//   bytes 2…3   m   f16 minimum
//   bytes 4…19  qs  byte j: low nibble = element j, high nibble = element j + 16
// A block is five whole words.
// uses    lib/weights32.wgsl lib/nibbles.wgsl
// source  block_q4_1 in https://github.com/ggml-org/llama.cpp/blob/80fb11ac73e66d89eae2c6a91d8a77428fa733ed/ggml/src/ggml-common.h
fn weights(row: u32, group: u32) -> Weights32 {
  let at = (row * (N_IN / 32u) + group) * 5u;
  let dm = unpack2x16float(w[at]);
  let m = vec4f(dm.y);
  let a = w[at + 1u];
  let b = w[at + 2u];
  let c = w[at + 3u];
  let d = w[at + 4u];
  return Weights32(
    low_nibbles(a) * dm.x + m, low_nibbles(b) * dm.x + m, low_nibbles(c) * dm.x + m, low_nibbles(d) * dm.x + m,
    high_nibbles(a) * dm.x + m, high_nibbles(b) * dm.x + m, high_nibbles(c) * dm.x + m, high_nibbles(d) * dm.x + m);
}
