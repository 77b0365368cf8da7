// f32_super: of each cell HIGH words of high bits, then what the type's dm_of makes of its scales: two f32.
@group(0) @binding(1) var<storage, read>       s: array<u32>;

fn scales_of(cell: u32) -> Scales {
  let first = (HIGH + 2u) * cell + HIGH;
  return bitcast<vec2f>(vec2u(s[first], s[first + 1u]));
}

fn high_of(cell: u32, i: u32) -> u32 {
  return s[(HIGH + 2u) * cell + i];
}
