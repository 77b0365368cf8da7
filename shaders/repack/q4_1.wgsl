// Q4_1 in the file: 20 bytes, f16 d, f16 m, 16 bytes of nibbles: byte j holds elements j (low) and j + 16 (high).
// uses    lib/bytes.wgsl
@group(0) @binding(3) var<storage, read_write> s: array<vec2f>;
const BLOCK_BYTES = 20u;
const HAS_SCALES = true;
const WORDS = 1u;

fn move_words(at: u32, element: u32, to: u32, lane: u32) {
  // repeat quarter in 0..4
  q[to + ({quarter}u ^ lane)] = raw[at / 4u + 1u + {quarter}u] ^ 0x80000000u;
  // end
}

fn scale_of(at: u32) -> vec2f {
  return unpack2x16float(raw[at / 4u]);
}
