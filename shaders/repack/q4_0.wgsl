// Q4_0 in the file: 18 bytes, f16 d, 16 bytes of nibbles: byte j holds elements j (low) and j + 16 (high).
// uses    lib/bytes.wgsl
@group(0) @binding(3) var<storage, read_write> s: array<f32>;
const BLOCK_BYTES = 18u;
const HAS_SCALES = true;
const WORDS = 1u;

fn word_of(at: u32, element: u32, quarter: u32, i: u32) -> u32 {
  return load_word(at + 2u + 4u * quarter) ^ 0x80000000u;
}

fn scale_of(at: u32) -> f32 {
  return unpack2x16float(load_half(at)).x;
}
