// five_minima: weight = d * q + m, q of five bits (lib/five.wgsl).
fn offsets(a: vec4f, b: vec4f) -> vec2f {
  return vec2f(16.0 * b.w, ((a.x + a.y) + (a.z + a.w)) + ((b.x + b.y) + (b.z + b.w)));
}

fn scaled(sum: f32, dm: vec2f, sums: vec2f) -> f32 {
  return dm.x * (sum + sums.x) + dm.y * sums.y;
}

fn values(a: vec4f, b: vec4f, dm: vec2f) -> Quarter {
  return Quarter(a * SCALE_A * dm.x + dm.y, (b * SCALE_B + vec4f(0.0, 0.0, 0.0, 16.0)) * dm.x + dm.y);
}
