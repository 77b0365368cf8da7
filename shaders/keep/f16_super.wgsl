// f16_super: keep the scales of a super-block as they are, see scale/f16_super.wgsl.
// uses    lib/super_file.wgsl
fn keep_small(at: u32, sub: u32, cell: u32) {
  let first = cell / 256u * (160u + 256u * HIGH) + cell % 32u;
  if (sub == 0u) {
    s[first] = pair(at);
  }
  if (sub < 4u) {  // for the block that has the other half of the word too
    s[first + 32u + 32u * sub] = small(at, sub) | (small(at, sub + 4u) << 16u);
  }
}

fn keep_high(cell: u32, i: u32, bits: u32) {
  s[cell / 256u * (160u + 256u * HIGH) + 160u + HIGH * (cell % 256u) + i] = bits;
}
