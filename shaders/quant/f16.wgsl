// F16: IEEE half precision.
//   q   a cell is four vec4u: word s of the i-th holds the i-th pair of elements of quarter s ^ lane
//   s   not used
// uses    lib/cell.wgsl lib/plain.wgsl lib/pairs.wgsl
// source  IEEE 754-2019, binary16
@group(0) @binding(0) var<storage, read>       q: array<vec4u>;
@group(0) @binding(1) var<storage, read>       s: array<f32>;

fn four(low: u32, high: u32) -> vec4f {
  return vec4f(unpack2x16float(low), unpack2x16float(high));
}
