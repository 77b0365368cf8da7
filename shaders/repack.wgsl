// repack: rows as the file has them, into the tiles that the kernels read (lib/tiles.wgsl). Bits only: no
// weight is changed; scales stay f16 or are widened to f32 (keep/<F>).
// shapes  raw: n_rows rows of row_bytes bytes   q: WORDS words a quarter   s: the scales of each cell
// grid    x, y: ceil(n_rows * n_blocks / WG) workgroups, folded; one invocation per block
// uses    lib/grid.wgsl lib/tiles.wgsl repack/<Q>.wgsl
// error   none
// source  the layouts in quant/<Q>.wgsl
override WG: u32 = 64u;        // power of two
struct Piece {
  at: u32,      // byte of `raw` where the first row starts, a multiple of 4
  n_rows: u32,
  row0: u32,    // the first row's place in the matrix of `q`
  step: u32,    // rows of the matrix from one row of the piece to the next
  n_in: u32,    // row length, elements
  row_bytes: u32,
}
@group(0) @binding(0) var<storage, read>       raw: array<u32>;    // rows as the file has them
@group(0) @binding(1) var<storage, read>       piece: Piece;       // which they are
@group(0) @binding(2) var<storage, read_write> q: array<u32>;      // tiles

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) workgroup: vec3u, @builtin(num_workgroups) count: vec3u,
        @builtin(local_invocation_index) index: u32) {
  let n_blocks = (piece.n_in + 31u) / 32u;
  let id = flat_workgroup(workgroup, count) * WG + index;
  if (id >= piece.n_rows * n_blocks) {
    return;
  }
  let row = id / n_blocks;
  let block = id - row * n_blocks;
  let at = piece.at + row * piece.row_bytes + block * BLOCK_BYTES;
  let cell = cell_of(piece.row0 + row * piece.step, block, n_blocks);
  // Of the block at byte `at`, whose first weight is that element of its row: its words to q[to…], the quarters
  // in the order of `lane`. Unrolled, and each word of `raw` read once: loads and stores are what this costs.
  move_words(at, 32u * block, cell * WORDS * 4u, cell & 3u);
  move_scales(at, cell);
}
