// registers: the products of an invocation's rows with T rows of x, unrolled, with their sums in registers: right
// where registers are many and code is no matter. P is 4 at most.
// uses    lib/work.wgsl lib/product.wgsl
// Sums of row r of the invocation (row r % 2 of pair r / 2) and token t0 + t at t * 2 P + r.
fn products(work: Work, t0: u32, n_tokens: u32) -> array<f32, 2 * {P} * {T}> {
  // repeat t in 0..T
  let at{t} = min(t0 + {t}u, n_tokens - 1u) * (X_STRIDE / 4u);
  // end
  // repeat p in 0..P
  // repeat t in 0..T
  var even{p}_{t} = 0.0;
  var odd{p}_{t} = 0.0;
  // end
  // end
  let cell = first_cell(work);
  for (var block = 0u; block < N_BLOCKS; block++) {
    // repeat t in 0..T
    let z{t} = activations(at{t} + 8u * block, work.lane);
    // end
    // repeat p in 0..P
    let v{p} = words(cell + 32u * block + 8u * {p}u);
    // repeat t in 0..T
    even{p}_{t} += product(v{p}, z{t});
    // end
    let w{p} = words(cell + 32u * block + 8u * {p}u + 4u);
    // repeat t in 0..T
    odd{p}_{t} += product(w{p}, z{t});
    // end
    // end
  }
  var sums: array<f32, 2 * {P} * {T}>;
  // repeat p in 0..P
  // repeat t in 0..T
  sums[{t} * 2 * {P} + 2 * {p}] = even{p}_{t};
  sums[{t} * 2 * {P} + 2 * {p} + 1] = odd{p}_{t};
  // end
  // end
  return sums;
}
