// nibbles: the four low or high nibbles of a word, as numbers 0…15. Masked in place and scaled by an exact
// power of two: a shift costs more than a multiplication on software adapters.
fn low_nibbles(word: u32) -> vec4f {
  return vec4f(vec4u(word) & vec4u(0xfu, 0xf00u, 0xf0000u, 0xf000000u)) * vec4f(0x1p0, 0x1p-8, 0x1p-16, 0x1p-24);
}

fn high_nibbles(word: u32) -> vec4f {
  return vec4f(vec4u(word) & vec4u(0xf0u, 0xf000u, 0xf00000u, 0xf0000000u)) * vec4f(0x1p-4, 0x1p-12, 0x1p-20, 0x1p-28);
}
