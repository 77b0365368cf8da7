// numbers: 32 weights of four bits that are places in a table of numbers, which the part's number() computes: there is
// no cheap way to look something up. A cell is as in lib/nibbles.wgsl.
// uses    lib/cell.wgsl
const SCALE_A = vec4f(1.0);
const SCALE_B = vec4f(1.0);

struct Words {
  v: vec4i, dm: vec2f,
}

fn words(cell: u32) -> Words {
  return Words(bitcast<vec4i>(q[cell]), scales_of(cell));
}

// repeat i in 0..4
fn a{i}(w: Words) -> vec4f {
  let place = vec4f(vec4i(w.v[{i}]) & vec4i(0xf, 0xf00, 0xf0000, 0xf000000));
  return number(place * vec4f(0x1p0, 0x1p-8, 0x1p-16, 0x1p-24));
}

fn b{i}(w: Words) -> vec4f {
  let place = vec4f(vec4i(w.v[{i}]) & vec4i(0xf0, 0xf000, 0xf00000, bitcast<i32>(0xf0000000u)));
  return number(place * vec4f(0x1p-4, 0x1p-12, 0x1p-20, 0x1p-28) + vec4f(0.0, 0.0, 0.0, 8.0));
}

// end
fn offsets(a: vec4f, b: vec4f) -> vec2f {
  return vec2f(0.0);
}

fn scaled(sum: f32, dm: vec2f, sums: vec2f) -> f32 {
  return dm.x * sum;
}

fn values(a: vec4f, b: vec4f, dm: vec2f) -> Quarter {
  return Quarter(a * dm.x, b * dm.x);
}
