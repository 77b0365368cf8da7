// registers: the products of an invocation's rows with T rows of x, unrolled, with their sums in registers: right
// where registers are many and code is no matter. P is 4 at most. A quarter of a cell is unpacked once and then
// multiplied with all T rows: that order is what keeps its weights in registers.
// uses    lib/work.wgsl
// Sums of row r of the invocation (row r % 2 of pair r / 2) and token t0 + t at t * 2 P + r.
fn products(work: Work, t0: u32, n_tokens: u32) -> array<f32, 2 * {P} * {T}> {
  // repeat t in 0..T
  let at{t} = min(t0 + {t}u, n_tokens - 1u) * (X_STRIDE / 4u);
  // end
  // repeat p in 0..P
  // repeat o in 0..2
  // repeat t in 0..T
  var sum{p}_{o}_{t} = 0.0;
  // end
  // end
  // end
  let cell = first_cell(work);
  for (var block = 0u; block < N_BLOCKS; block++) {
    // repeat t in 0..T
    let z{t} = activations(at{t} + 8u * block, work.lane);
    // end
    // repeat p in 0..P
    // repeat o in 0..2
    let w{p}_{o} = words(cell + 32u * block + 8u * {p}u + 4u * {o}u);
    // repeat i in 0..4
    let a{p}_{o}_{i} = a{i}(w{p}_{o});
    let b{p}_{o}_{i} = b{i}(w{p}_{o});
    // repeat t in 0..T
    let s{p}_{o}_{i}_{t} = dot(a{p}_{o}_{i}, z{t}.a{i}) + dot(b{p}_{o}_{i}, z{t}.b{i});
    // end
    // end
    // repeat t in 0..T
    sum{p}_{o}_{t} += scaled(
      (s{p}_{o}_0_{t} + s{p}_{o}_1_{t}) + (s{p}_{o}_2_{t} + s{p}_{o}_3_{t}), w{p}_{o}.dm, z{t}.sums);
    // end
    // end
    // end
  }
  var sums: array<f32, 2 * {P} * {T}>;
  // repeat p in 0..P
  // repeat o in 0..2
  // repeat t in 0..T
  sums[{t} * 2 * {P} + 2 * {p} + {o}] = sum{p}_{o}_{t};
  // end
  // end
  // end
  return sums;
}
