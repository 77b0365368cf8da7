// F32 in the file: four bytes an element. A row may have any length; elements past its end become zero.
// uses    lib/bytes.wgsl
@group(0) @binding(3) var<storage, read_write> s: array<f32>;
const BLOCK_BYTES = 128u;
const WORDS = 8u;

fn move_words(at: u32, element: u32, to: u32, lane: u32) {
  let left = piece.n_in - element;  // elements of the row from here on
  // repeat i in 0..8
  // repeat quarter in 0..4
  {
    const J = 16u * ({i}u / 4u) + 4u * {quarter}u + {i}u % 4u;  // element of the block
    q[to + 4u * {i}u + ({quarter}u ^ lane)] = select(0u, raw[at / 4u + J], J < left);
  }
  // end
  // end
}

fn move_scales(at: u32, cell: u32) {
}
