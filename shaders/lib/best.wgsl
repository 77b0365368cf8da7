// best: the (value, index) pair that argmax keeps.
// Values are compared as integers whose order is that of the floats, so that no compiler's assumption about
// NaN can matter: NaN has key 0, below every number, and never wins. Equal values: the lower index wins.
struct Best {
  key: u32,
  index: u32,
}

const NONE = Best(0u, 0xffffffffu);

fn float_key(value: f32) -> u32 {
  let bits = bitcast<u32>(value);
  let magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return 0u;
  }
  // -0 equals +0; negative numbers run backwards
  return select(0x80000000u + magnitude, 0x80000000u - magnitude, bits > 0x80000000u);
}

fn better(a: Best, b: Best) -> Best {
  if (b.key > a.key || (b.key == a.key && b.key != 0u && b.index < a.index)) {
    return b;
  }
  return a;
}
