// Q4_0: 32 weights in 18 bytes; weight = d * (nibble - 8).
//   bytes 0…1   d   f16 scale
//   bytes 2…17  qs  byte j: low nibble = element j, high nibble = element j + 16
// uses    lib/weights32.wgsl lib/nibbles.wgsl lib/bytes.wgsl
// source  block_q4_0 in https://github.com/ggml-org/llama.cpp/blob/80fb11ac73e66d89eae2c6a91d8a77428fa733ed/ggml/src/ggml-common.h
fn weights(row: u32, group: u32) -> Weights32 {
  let at = (row * (N_IN / 32u) + group) * 18u;
  let scale = unpack2x16float(load_half(at)).x;
  let a = load_word(at + 2u);
  let b = load_word(at + 6u);
  let c = load_word(at + 10u);
  let d = load_word(at + 14u);
  return Weights32(
    (low_nibbles(a) - 8.0) * scale, (low_nibbles(b) - 8.0) * scale,
    (low_nibbles(c) - 8.0) * scale, (low_nibbles(d) - 8.0) * scale,
    (high_nibbles(a) - 8.0) * scale, (high_nibbles(b) - 8.0) * scale,
    (high_nibbles(c) - 8.0) * scale, (high_nibbles(d) - 8.0) * scale);
}
