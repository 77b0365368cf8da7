// Q4_1 in the file: 20 bytes, f16 d, f16 m, 16 bytes of nibbles: byte j holds elements j (low) and j + 16 (high).
// uses    lib/bytes.wgsl
@group(0) @binding(3) var<storage, read_write> s: array<vec2f>;
const BLOCK_BYTES = 20u;
const HAS_SCALES = true;
const WORDS = 1u;

fn word_of(at: u32, element: u32, quarter: u32, i: u32) -> u32 {
  return load_word(at + 4u + 4u * quarter) ^ 0x80000000u;
}

fn scale_of(at: u32) -> vec2f {
  return unpack2x16float(load_word(at));
}
