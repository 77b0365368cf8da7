// five: 32 weights of five bits. The low bits are a cell of vec4u: in word s, of quarter s ^ lane, byte i has the low
// nibble of element 4 quarter + i in its low half and the high nibble of element 16 + 4 quarter + i in its high half.
// What they lack is next to them, bit 4 of the first and bit 3 of the second: a word, see lib/turned.wgsl. The top bit
// is flipped (minus 16), as in lib/nibbles.wgsl.
// uses    lib/turned.wgsl
const SCALE_A = vec4f(0x1p0, 0x1p-8, 0x1p-16, 0x1p-24);
const SCALE_B = vec4f(0x1p-3, 0x1p-11, 0x1p-19, 0x1p-27);

fn low(word: i32, bits: i32) -> vec4f {
  return vec4f((vec4i(word) & vec4i(0xf, 0xf00, 0xf0000, 0xf000000))
    | (vec4i(bits) & vec4i(0x10, 0x1000, 0x100000, 0x10000000)));
}

fn high(word: i32, bits: i32) -> vec4f {
  return vec4f((vec4i(word) & vec4i(0xf0, 0xf000, 0xf00000, bitcast<i32>(0xf0000000u)))
    | (vec4i(bits) & vec4i(0x8, 0x800, 0x80000, 0x8000000)));
}

struct Words {
  v: vec4i, h: vec4i, dm: vec2f,
}

fn five(v: vec4u, bits: u32, dm: vec2f) -> Words {
  return Words(bitcast<vec4i>(v), turned_pair(bits), dm);
}

// repeat i in 0..4
fn a{i}(w: Words) -> vec4f {
  return low(w.v[{i}], w.h[{i}]);
}

fn b{i}(w: Words) -> vec4f {
  return high(w.v[{i}], w.h[{i}]);
}

// end
