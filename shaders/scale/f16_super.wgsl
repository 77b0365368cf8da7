// f16_super: what 256 cells, those of eight blocks of a tile, keep beside their low bits. For each row of the tile a
// word of two f16, d and dmin of its super-block of 256 weights; then for each row and pair of blocks a word, 16 bits
// for each block: small scales, of which the type's dm_of makes what weights and sums are scaled with; then for each
// cell HIGH words of high bits.
@group(0) @binding(1) var<storage, read>       s: array<u32>;

fn scales_of(cell: u32) -> Scales {
  let first = cell / 256u * (160u + 256u * HIGH) + cell % 32u;
  let small = s[first + 32u + cell / 64u % 4u * 32u];
  return dm_of(unpack2x16float(s[first]), select(small & 0xffffu, small >> 16u, (cell & 32u) != 0u));
}

fn high_of(cell: u32, i: u32) -> u32 {
  return s[cell / 256u * (160u + 256u * HIGH) + 160u + HIGH * (cell % 256u) + i];
}
