// F16 in the file: two bytes an element. A row may have any length; elements past its end become zero.
// uses    lib/bytes.wgsl
@group(0) @binding(3) var<storage, read_write> s: array<f32>;
const BLOCK_BYTES = 64u;
const HAS_SCALES = false;
const WORDS = 4u;

fn half_of(at: u32, element: u32, j: u32) -> u32 {
  return select(0u, load_half(at + 2u * j), element + j < piece.n_in);
}

fn word_of(at: u32, element: u32, quarter: u32, i: u32) -> u32 {
  let j = 16u * (i / 2u) + 4u * quarter + 2u * (i % 2u);
  return half_of(at, element, j) | (half_of(at, element, j + 1u) << 16u);
}

fn scale_of(at: u32) -> f32 {
  return 0.0;
}
