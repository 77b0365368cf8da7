// f32_2: two f32 scales a cell.
@group(0) @binding(1) var<storage, read>       s: array<vec2f>;

fn scales_of(cell: u32) -> vec2f {
  return s[cell];
}
