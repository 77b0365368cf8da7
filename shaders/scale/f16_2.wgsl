// f16_2: two f16 scales a cell, as the file has them: one word.
@group(0) @binding(1) var<storage, read>       s: array<u32>;

fn scales_of(cell: u32) -> vec2f {
  return unpack2x16float(s[cell]);
}
