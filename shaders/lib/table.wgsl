// table: 32 weights of four bits that are places in a table of signed bytes, TABLE: four to a word. A cell is vec4u:
// word s holds quarter s ^ lane, nibble 2 i + h of it element 16 h + 4 quarter + i. A number comes as the top byte of a
// word, for that is where a signed mask finds it.
const SCALE_A = vec4f(0x1p-24);
const SCALE_B = SCALE_A;

fn found(i: vec4u) -> vec4f {
  let upper = (i & vec4u(4u)) != vec4u(0u);
  let four = select(
    select(vec4u(TABLE.x), vec4u(TABLE.y), upper), select(vec4u(TABLE.z), vec4u(TABLE.w), upper),
    (i & vec4u(8u)) != vec4u(0u));
  return vec4f(bitcast<vec4i>((four << (24u - 8u * (i & vec4u(3u)))) & vec4u(0xff000000u)));
}

struct Words {
  v: vec4u, dm: vec2f,
}

fn words(cell: u32) -> Words {
  return Words(q[cell], scales_of(cell));
}

// repeat i in 0..4
fn a{i}(w: Words) -> vec4f {
  return found(vec4u(w.v[{i}]) >> vec4u(0u, 8u, 16u, 24u));
}

fn b{i}(w: Words) -> vec4f {
  return found(vec4u(w.v[{i}]) >> vec4u(4u, 12u, 20u, 28u));
}

// end
fn offsets(a: vec4f, b: vec4f) -> vec2f {
  return vec2f(0.0);
}

fn scaled(sum: f32, dm: vec2f, sums: vec2f) -> f32 {
  return dm.x * sum;
}

fn values(a: vec4f, b: vec4f, dm: vec2f) -> Quarter {
  return Quarter(a * SCALE_A * dm.x, b * SCALE_B * dm.x);
}
