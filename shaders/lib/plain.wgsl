// plain: what a quant part without blocks needs: no scales, weights as they are.
// uses    lib/cell.wgsl
const SCALE_A = vec4f(1.0);
const SCALE_B = vec4f(1.0);

fn offsets(a: vec4f, b: vec4f) -> vec2f {
  return vec2f(0.0);
}

fn scaled(sum: f32, dm: vec2f, sums: vec2f) -> f32 {
  return sum;
}

fn values(a: vec4f, b: vec4f, dm: vec2f) -> Quarter {
  return Quarter(a, b);
}
