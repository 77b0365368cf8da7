// packed: as registers, for weights of four bits and activations of eight, which `pack` has rounded: the products of
// two tokens in one multiplication of 32-bit integers. Sixteen products of a nibble (0 … 15) and an activation
// (-127 … 127) fit in 16 bits: the low half of their sum is the first token's, what is left the second's.
// T = 2 U. Sums of 32 are exact: what is computed of a token does not depend on its neighbour.
// uses    lib/work.wgsl packed/<Q>.wgsl load_packed/<S>.wgsl
struct Packed {
  a0: vec4i, b0: vec4i, a1: vec4i, b1: vec4i, a2: vec4i, b2: vec4i, a3: vec4i, b3: vec4i,
  scales: vec4f,  // d of both tokens, sum of q of both
}

// The nibbles of a quarter (lib/nibbles.wgsl): its first half …
fn low_nibbles(word: i32) -> vec4i {
  return bitcast<vec4i>((vec4u(bitcast<u32>(word)) >> vec4u(0u, 8u, 16u, 24u)) & vec4u(15u));
}

// … and its second, of which the top one has its sign bit flipped.
fn high_nibbles(word: i32) -> vec4i {
  return bitcast<vec4i>((vec4u(bitcast<u32>(word) ^ 0x80000000u) >> vec4u(4u, 12u, 20u, 28u)) & vec4u(15u));
}

fn dot_i(a: vec4i, b: vec4i) -> i32 {
  let products = a * b;
  return (products.x + products.y) + (products.z + products.w);
}

// Both halves of a sum.
fn halves(sum: i32) -> vec2i {
  let low = (sum << 16u) >> 16u;
  return vec2i(low, (sum - low) >> 16u);
}

// Sums of row r of the invocation (row r % 2 of pair r / 2) and token t0 + t at t * 2 P + r.
fn products(work: Work, t0: u32, n_tokens: u32) -> array<f32, 2 * {P} * {T}> {
  // repeat u in 0..U
  let at{u} = min(t0 / 2u + {u}u, (n_tokens - 1u) / 2u) * (9u * N_BLOCKS);
  // end
  // repeat p in 0..P
  // repeat o in 0..2
  // repeat u in 0..U
  var sum{p}_{o}_{u} = vec2f();
  // end
  // end
  // end
  let cell = first_cell(work);
  for (var block = 0u; block < N_BLOCKS; block++) {
    // repeat u in 0..U
    let z{u} = packed(at{u} + 9u * block, work.lane);
    // end
    // repeat p in 0..P
    // repeat o in 0..2
    let w{p}_{o} = words(cell + 32u * block + 8u * {p}u + 4u * {o}u);
    // repeat i in 0..4
    let a{p}_{o}_{i} = low_nibbles(w{p}_{o}.v[{i}]);
    let b{p}_{o}_{i} = high_nibbles(w{p}_{o}.v[{i}]);
    // repeat u in 0..U
    let s{p}_{o}_{i}_{u} = dot_i(a{p}_{o}_{i}, z{u}.a{i}) + dot_i(b{p}_{o}_{i}, z{u}.b{i});
    // end
    // end
    // repeat u in 0..U
    let v{p}_{o}_{u} = halves(s{p}_{o}_0_{u} + s{p}_{o}_1_{u}) + halves(s{p}_{o}_2_{u} + s{p}_{o}_3_{u});
    sum{p}_{o}_{u} += z{u}.scales.xy * weighted(vec2f(v{p}_{o}_{u}), w{p}_{o}.dm, z{u}.scales.zw);
    // end
    // end
    // end
  }
  var sums: array<f32, 2 * {P} * {T}>;
  // repeat p in 0..P
  // repeat o in 0..2
  // repeat u in 0..U
  sums[4 * {P} * {u} + 2 * {p} + {o}] = sum{p}_{o}_{u}.x;
  sums[4 * {P} * {u} + 2 * {P} + 2 * {p} + {o}] = sum{p}_{o}_{u}.y;
  // end
  // end
  // end
  return sums;
}
