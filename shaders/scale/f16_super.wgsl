// f16_super: what 256 cells, those of eight blocks of a tile, keep beside their low bits. For each row of the tile a
// word of two f16, d and dmin of its super-block of 256 weights; then for each row and block i of the first four a
// word, small scales of 16 bits of block i and, in its upper half, of block i + 4; then for each cell HIGH words of
// high bits. The type's dm_of makes of them what weights and sums are scaled with; it gets the small scales in the
// upper half of a word: as few shifts as possible, see lib/nibbles.wgsl.
@group(0) @binding(1) var<storage, read>       s: array<u32>;

fn scales_of(cell: u32) -> Scales {
  let first = (cell >> 8u) * (160u + 256u * HIGH);
  let small = s[first + 32u + (cell & 127u)];
  let pair = unpack2x16float(s[first + (cell & 31u)]);
  return dm_of(pair, select(small * 0x10000u, small & 0xffff0000u, (cell & 128u) != 0u));
}

fn high_of(cell: u32, i: u32) -> u32 {
  return s[(cell >> 8u) * (160u + 256u * HIGH) + 160u + HIGH * (cell & 255u) + i];
}
