// nibbles: 32 weights of four bits. A cell is vec4u: word s holds quarter s ^ lane, nibble 2 i + h of it element
// 16 h + 4 quarter + i, the top one with its sign bit flipped (minus 8), so that a signed mask and conversion does
// for all. They are masked in place, the activations being scaled by an exact power of two instead: a shift costs
// more than eight multiplications on software adapters.
const SCALE_A = vec4f(0x1p0, 0x1p-8, 0x1p-16, 0x1p-24);
const SCALE_B = vec4f(0x1p-4, 0x1p-12, 0x1p-20, 0x1p-28);

fn low(word: i32) -> vec4f {
  return vec4f(vec4i(word) & vec4i(0xf, 0xf00, 0xf0000, 0xf000000));
}

fn high(word: i32) -> vec4f {
  return vec4f(vec4i(word) & vec4i(0xf0, 0xf000, 0xf00000, bitcast<i32>(0xf0000000u)));
}

struct Words {
  v: vec4i, dm: vec2f,
}

fn words(cell: u32) -> Words {
  return Words(bitcast<vec4i>(q[cell]), scales_of(cell));
}

// repeat i in 0..4
fn a{i}(w: Words) -> vec4f {
  return low(w.v[{i}]);
}

fn b{i}(w: Words) -> vec4f {
  return high(w.v[{i}]);
}

// end
