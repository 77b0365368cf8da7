// super: what 256 cells, those of eight blocks of a tile, keep beside their low bits. For each row of the tile a word
// of two f16, d and dmin of its super-block of 256 weights; then for each row and pair of blocks a word, 16 bits for
// each block: small scales, as the type says; then for each cell HIGH words of high bits.
@group(0) @binding(1) var<storage, read>       s: array<u32>;

fn super_of(cell: u32) -> u32 {
  return cell / 256u * (160u + 256u * HIGH);
}

fn pair_of(cell: u32) -> vec2f {
  return unpack2x16float(s[super_of(cell) + cell % 32u]);
}

fn small_of(cell: u32) -> u32 {
  let word = s[super_of(cell) + 32u + cell / 64u % 4u * 32u + cell % 32u];
  return select(word & 0xffffu, word >> 16u, (cell & 32u) != 0u);
}

fn high_of(cell: u32, i: u32) -> u32 {
  return s[super_of(cell) + 160u + HIGH * (cell % 256u) + i];
}
