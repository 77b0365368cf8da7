// two_file: Q2_K and Q3_K in the file: of each 128 elements 32 bytes with two bits of elements j, 32 + j, 64 + j and
// 96 + j. Those of four elements from j on of block `sub`, in the bytes of a word; `first` is where the bytes begin.
fn two(first: u32, sub: u32, j: u32) -> u32 {
  return (load_word(first + 32u * (sub / 4u) + j) >> (2u * (sub % 4u))) & 0x03030303u;
}
