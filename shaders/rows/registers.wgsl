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
    // repeat i in 0..4
    let v{p}a{i} = a{i}(v{p});
    let v{p}b{i} = b{i}(v{p});
    // repeat t in 0..T
    let v{p}_{t}_{i} = dot(v{p}a{i}, z{t}.a{i}) + dot(v{p}b{i}, z{t}.b{i});
    // end
    // end
    // repeat t in 0..T
    let v{p}_{t} = (v{p}_{t}_0 + v{p}_{t}_1) + (v{p}_{t}_2 + v{p}_{t}_3);
    even{p}_{t} += scaled(v{p}_{t}, v{p}.dm, z{t}.sums);
    // end
    let w{p} = words(cell + 32u * block + 8u * {p}u + 4u);
    // repeat i in 0..4
    let w{p}a{i} = a{i}(w{p});
    let w{p}b{i} = b{i}(w{p});
    // repeat t in 0..T
    let w{p}_{t}_{i} = dot(w{p}a{i}, z{t}.a{i}) + dot(w{p}b{i}, z{t}.b{i});
    // end
    // end
    // repeat t in 0..T
    let w{p}_{t} = (w{p}_{t}_0 + w{p}_{t}_1) + (w{p}_{t}_2 + w{p}_{t}_3);
    odd{p}_{t} += scaled(w{p}_{t}, w{p}.dm, z{t}.sums);
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
