// F32: IEEE single precision.
//   q   a cell is eight vec4u: word s of the i-th holds the i-th element of quarter s ^ lane
//   s   not used
// uses    lib/cell.wgsl lib/plain.wgsl
// source  IEEE 754-2019, binary32
@group(0) @binding(0) var<storage, read>       q: array<vec4u>;
@group(0) @binding(1) var<storage, read>       s: array<f32>;

fn unpack(cell: u32) -> Cell {
  // repeat i in 0..8
  let e{i} = bitcast<vec4f>(q[8u * cell + {i}u]);
  // end
  return Cell(
    vec4f(e0.x, e1.x, e2.x, e3.x), vec4f(e4.x, e5.x, e6.x, e7.x),
    vec4f(e0.y, e1.y, e2.y, e3.y), vec4f(e4.y, e5.y, e6.y, e7.y),
    vec4f(e0.z, e1.z, e2.z, e3.z), vec4f(e4.z, e5.z, e6.z, e7.z),
    vec4f(e0.w, e1.w, e2.w, e3.w), vec4f(e4.w, e5.w, e6.w, e7.w), vec2f(0.0));
}
