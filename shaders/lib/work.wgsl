// work: which rows of a tiled matrix an invocation multiplies with x. It has P pairs: those of a quarter, half or
// whole of a tile, or of P / 4 tiles, every fourth row pair of them (lib/tiles.wgsl).
// uses    lib/cell.wgsl lib/activations.wgsl lib/grid.wgsl
override N_BLOCKS: u32;        // blocks of 32 in a row of W and x
override N_ROWS: u32;          // rows to compute
override FIRST: u32 = 0u;      // where they start in this buffer, a multiple of 32
override ROW0: u32 = 0u;       // what the first one's number is in the whole matrix
override X_STRIDE: u32;        // elements from one row of x to the next, a multiple of 32
const TILES = max({P}u / 4u, 1u);      // tiles that an invocation has rows of
const PARTS = max(4u / {P}u, 1u);      // invocations in a lane of a tile

// Pair p is rows row + 8 p and row + 8 p + 1. What lies past the matrix repeats its last rows, so that all
// invocations take the same way through shared operations, and must not store.
struct Work {
  unit: u32,  // which of those that share a lane: the first is 0
  lane: u32,  // 0…3
  row: u32,   // its first row, counted from the start of the whole matrix
  part: u32,  // which group of 8 P rows of the whole matrix
  live: bool,  // false past the last unit
}

fn n_tiles() -> u32 {
  return (N_ROWS + 31u) / 32u;  // rows past the last in its tile are zero; their sums are stored as such
}

fn work_of(invocation: u32) -> Work {
  let units = (n_tiles() + TILES - 1u) / TILES * PARTS;
  let unit = min(invocation / 4u, units - 1u);
  let lane = invocation % 4u;
  return Work(unit, lane, ROW0 + unit * (8u * {P}u) + 2u * lane, ROW0 / (8u * {P}u) + unit, invocation / 4u < units);
}

// The cell of block 0 of an invocation's first row. Those past the last tile belong to another matrix, or are none:
// their sums are not stored either.
fn first_cell(work: Work) -> u32 {
  let tile = FIRST / 32u + work.unit / PARTS * TILES;
  return tile * (N_BLOCKS * 32u) + work.unit % PARTS * (8u * {P}u) + work.lane;
}

// Cells from an invocation's first row to its row r: it has 8 rows of a tile, 8 of the next, …
fn cells_to(r: u32) -> u32 {
  return 4u * r + (r & ~7u) * (4u * N_BLOCKS - 4u);
}
