// f32_2: widen two f16 scales a cell to f32.
@group(0) @binding(3) var<storage, read_write> s: array<vec2f>;

fn keep_scales(cell: u32, halves: u32) {
  s[cell] = unpack2x16float(halves);
}
