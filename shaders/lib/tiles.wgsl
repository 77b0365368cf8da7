// tiles: where a weight is. A matrix lies on the GPU in tiles of 32 rows, block-major inside, a block being 32
// weights of one row: cell = (tile * n_blocks + block) * 32 + place. A row's place pairs it with its neighbour,
//   row % 32 = 8 j + 2 lane + odd   ->   place = 8 j + 4 odd + lane      (lane = 0…3)
// so that an invocation that walks places lane, lane + 4, lane + 8, … has whole pairs of rows: what rotates two
// rows together (rope) or multiplies them (gate and up) needs no other invocation.
// Four quarters make a block: quarter i is elements 4 i … 4 i + 3 and 16 + 4 i … 16 + 4 i + 3. A cell keeps
// its quarters in the order 0 ^ lane, 1 ^ lane, 2 ^ lane, 3 ^ lane.
fn cell_of(row: u32, block: u32, n_blocks: u32) -> u32 {
  let place = (row & 24u) + 4u * (row & 1u) + ((row & 6u) / 2u);
  return (row / 32u * n_blocks + block) * 32u + place;
}
