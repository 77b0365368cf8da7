// F32 in the file: four bytes an element. A row may have any length; elements past its end become zero.
// uses    lib/bytes.wgsl
@group(0) @binding(3) var<storage, read_write> s: array<f32>;
const BLOCK_BYTES = 128u;
const HAS_SCALES = false;
const WORDS = 8u;

fn word_of(at: u32, element: u32, quarter: u32, i: u32) -> u32 {
  let j = 16u * (i / 4u) + 4u * quarter + i % 4u;
  return select(0u, load_word(at + 4u * j), element + j < piece.n_in);
}

fn scale_of(at: u32) -> f32 {
  return 0.0;
}
