// Q8_0 in the file: 34 bytes, f16 d, 32 signed bytes.
// uses    lib/bytes.wgsl
@group(0) @binding(3) var<storage, read_write> s: array<f32>;
const BLOCK_BYTES = 34u;
const HAS_SCALES = true;
const WORDS = 2u;

fn word_of(at: u32, element: u32, quarter: u32, i: u32) -> u32 {
  return load_word(at + 2u + 16u * i + 4u * quarter) ^ 0x00808080u;
}

fn scale_of(at: u32) -> f32 {
  return unpack2x16float(load_half(at)).x;
}
