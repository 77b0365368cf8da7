// F32: IEEE single precision.
//   q   a cell is eight vec4u: word s of the i-th holds the i-th element of quarter s ^ lane
//   s   not used
// uses    lib/cell.wgsl lib/plain.wgsl
// source  IEEE 754-2019, binary32
@group(0) @binding(0) var<storage, read>       q: array<vec4u>;
@group(0) @binding(1) var<storage, read>       s: array<f32>;

struct Words {
  // repeat e in 0..8
  e{e}: vec4f,
  // end
  dm: vec2f,
}

fn words(cell: u32) -> Words {
  var w: Words;
  // repeat e in 0..8
  w.e{e} = bitcast<vec4f>(q[8u * cell + {e}u]);
  // end
  return w;
}

// repeat i in 0..4
fn a{i}(w: Words) -> vec4f {
  return vec4f(w.e0[{i}], w.e1[{i}], w.e2[{i}], w.e3[{i}]);
}

fn b{i}(w: Words) -> vec4f {
  return vec4f(w.e4[{i}], w.e5[{i}], w.e6[{i}], w.e7[{i}]);
}

// end
