// halves: weight = scale * (q - zero), with a scale for each half of a cell. Halves are unpacked with their scales: a
// quant times its scale has 24 significant bits at most, which is exact. Zero where a sign bit is flipped instead.
// uses    lib/cell.wgsl
alias Scales = vec2f;

struct Words {
  v: vec4i, h: vec4i, dm: Scales,
}

fn offsets(a: vec4f, b: vec4f) -> vec2f {
  return vec2f(-dot(a, ZERO_A), -dot(b, ZERO_B));
}

fn scaled(sum: f32, dm: Scales, sums: vec2f) -> f32 {
  return sum + (dm.x * sums.x + dm.y * sums.y);
}

fn values(a: vec4f, b: vec4f, dm: Scales) -> Quarter {
  return Quarter(a * SCALE_A - ZERO_A * dm.x, b * SCALE_B - ZERO_B * dm.y);
}
