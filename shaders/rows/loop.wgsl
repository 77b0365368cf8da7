// loop: the products of an invocation's rows with T rows of x, one row after another. The loop is short machine
// code with its sums in memory: right where code that does not fit the instruction cache costs more than they do.
// uses    lib/work.wgsl
// Sums of row r of the invocation (row r % 2 of pair r / 2) and token t0 + t at t * 2 P + r.
fn products(work: Work, t0: u32, n_tokens: u32) -> array<f32, 2 * {P} * {T}> {
  // repeat t in 0..T
  let at{t} = min(t0 + {t}u, n_tokens - 1u) * (X_STRIDE / 4u);
  // end
  var sums: array<f32, 2 * {P} * {T}>;
  for (var block = 0u; block < N_BLOCKS; block++) {
    // repeat t in 0..T
    let z{t} = activations(at{t} + 8u * block, work.lane);
    // end
    for (var k = 0u; k < TILES; k++) {
      let first = first_cell(work, k) + 32u * block;
      for (var j = 0u; j < 2u * PAIRS; j++) {
        let w = words(first + 4u * j);
        let r = 8u * k + j;
        // repeat i in 0..4
        let a{i} = a{i}(w);
        let b{i} = b{i}(w);
        // repeat t in 0..T
        let s{i}_{t} = dot(a{i}, z{t}.a{i}) + dot(b{i}, z{t}.b{i});
        // end
        // end
        // repeat t in 0..T
        sums[{t}u * (2u * {P}u) + r] += scaled((s0_{t} + s1_{t}) + (s2_{t} + s3_{t}), w.dm, z{t}.sums);
        // end
      }
    }
  }
  return sums;
}
