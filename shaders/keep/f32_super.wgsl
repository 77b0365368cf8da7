// f32_super: make of the scales of a block what weights are scaled with, see scale/f32_super.wgsl.
// uses    lib/super_file.wgsl
fn keep_small(at: u32, sub: u32, cell: u32) {
  let dm = bitcast<vec2u>(dm_of(unpack2x16float(pair(at)), small(at, sub) << 16u));
  s[(HIGH + 2u) * cell + HIGH] = dm.x;
  s[(HIGH + 2u) * cell + HIGH + 1u] = dm.y;
}

fn keep_high(cell: u32, i: u32, bits: u32) {
  s[(HIGH + 2u) * cell + i] = bits;
}
