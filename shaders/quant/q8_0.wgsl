// Q8_0: 32 weights in 34 bytes; weight = d * q.
//   bytes 0…1   d   f16 scale
//   bytes 2…33  qs  32 signed bytes
// uses    lib/weights32.wgsl lib/bytes.wgsl
// source  block_q8_0 in https://github.com/ggml-org/llama.cpp/blob/80fb11ac73e66d89eae2c6a91d8a77428fa733ed/ggml/src/ggml-common.h
fn signed_bytes(word: u32) -> vec4f {
  // q + 128 as an unsigned byte, masked in place and scaled by an exact power of two: no shifts
  let biased = vec4u(word ^ 0x80808080u) & vec4u(0xffu, 0xff00u, 0xff0000u, 0xff000000u);
  return vec4f(biased) * vec4f(0x1p0, 0x1p-8, 0x1p-16, 0x1p-24) - 128.0;
}

fn weights(row: u32, group: u32) -> Weights32 {
  let at = (row * (N_IN / 32u) + group) * 34u;
  let scale = unpack2x16float(load_half(at)).x;
  return Weights32(
    signed_bytes(load_word(at + 2u)) * scale, signed_bytes(load_word(at + 6u)) * scale,
    signed_bytes(load_word(at + 10u)) * scale, signed_bytes(load_word(at + 14u)) * scale,
    signed_bytes(load_word(at + 18u)) * scale, signed_bytes(load_word(at + 22u)) * scale,
    signed_bytes(load_word(at + 26u)) * scale, signed_bytes(load_word(at + 30u)) * scale);
}
