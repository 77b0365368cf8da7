// pairs: weights of 16 bits. A cell is four vec4u: word s of the i-th holds the i-th pair of elements of quarter
// s ^ lane. The quant part says with `four` what two such words stand for.
struct Words {
  e0: vec4u, e1: vec4u, e2: vec4u, e3: vec4u, dm: vec2f,
}

fn words(cell: u32) -> Words {
  return Words(q[4u * cell], q[4u * cell + 1u], q[4u * cell + 2u], q[4u * cell + 3u], vec2f(0.0));
}

// repeat i in 0..4
fn a{i}(w: Words) -> vec4f {
  return four(w.e0[{i}], w.e1[{i}]);
}

fn b{i}(w: Words) -> vec4f {
  return four(w.e2[{i}], w.e3[{i}]);
}

// end
