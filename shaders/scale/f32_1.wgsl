// f32_1: one f32 scale a cell.
@group(0) @binding(1) var<storage, read>       s: array<f32>;

fn scales_of(cell: u32) -> vec2f {
  return vec2f(s[cell], 0.0);
}
