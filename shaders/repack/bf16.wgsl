// BF16 in the file: two bytes an element. A row may have any length; elements past its end become zero.
// uses    lib/bytes.wgsl
@group(0) @binding(3) var<storage, read_write> s: array<f32>;
const BLOCK_BYTES = 64u;
const WORDS = 4u;

fn move_words(at: u32, element: u32, to: u32, lane: u32) {
  let left = piece.n_in - element;  // elements of the row from here on
  let first = at / 4u;
  let odd = (at & 2u) != 0u;
  var low = raw[first];
  // repeat half in 0..2
  // repeat quarter in 0..4
  // repeat i in 0..2
  {
    const J = 16u * {half}u + 4u * {quarter}u + 2u * {i}u;  // element of the block
    let high = raw[first + J / 2u + 1u];
    let kept = select(0u, 0xffffu, J < left) | select(0u, 0xffff0000u, J + 1u < left);
    q[to + 8u * {half}u + 4u * {i}u + ({quarter}u ^ lane)] = word_across(low, high, odd) & kept;
    low = high;
  }
  // end
  // end
  // end
}

fn move_scales(at: u32, cell: u32) {
}
