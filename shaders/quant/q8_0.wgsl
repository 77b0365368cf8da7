// Q8_0: weight = d * q.
//   q   a cell is two vec4u: word s of the first holds elements 4 i … 4 i + 3 of quarter i = s ^ lane, of the
//       second 16 + 4 i … ; all but the top byte with their sign bit flipped (plus 128), so that a signed mask
//       and conversion does for all
//   s   d
// uses    scale/<F>_1.wgsl lib/cell.wgsl
// source  block_q8_0 in https://github.com/ggml-org/llama.cpp/blob/80fb11ac73e66d89eae2c6a91d8a77428fa733ed/ggml/src/ggml-common.h
@group(0) @binding(0) var<storage, read>       q: array<vec4u>;

const SCALE_A = vec4f(0x1p0, 0x1p-8, 0x1p-16, 0x1p-24);
const SCALE_B = SCALE_A;

fn bytes(word: i32) -> vec4f {
  return vec4f(vec4i(word) & vec4i(0xff, 0xff00, 0xff0000, bitcast<i32>(0xff000000u)));
}

struct Words {
  v: vec4i, w: vec4i, dm: vec2f,
}

fn words(cell: u32) -> Words {
  return Words(bitcast<vec4i>(q[2u * cell]), bitcast<vec4i>(q[2u * cell + 1u]), scales_of(cell));
}

// repeat i in 0..4
fn a{i}(w: Words) -> vec4f {
  return bytes(w.v[{i}]);
}

fn b{i}(w: Words) -> vec4f {
  return bytes(w.w[{i}]);
}

// end
fn offsets(a: vec4f, b: vec4f) -> vec2f {
  return vec2f(-128.0 * (((a.x + a.y) + a.z) + ((b.x + b.y) + b.z)), 0.0);
}

fn scaled(sum: f32, dm: vec2f, sums: vec2f) -> f32 {
  return dm.x * (sum + sums.x);
}

fn values(a: vec4f, b: vec4f, dm: vec2f) -> Quarter {
  let zero = vec4f(128.0, 128.0, 128.0, 0.0);
  return Quarter((a * SCALE_A - zero) * dm.x, (b * SCALE_B - zero) * dm.x);
}
