// f32_1: widen one f16 scale a cell to f32.
@group(0) @binding(3) var<storage, read_write> s: array<f32>;

fn keep_scales(cell: u32, halves: u32) {
  s[cell] = unpack2x16float(halves).x;
}
