// loop_tokens: the same as loop with T rows of x at once, each weight unpacked once for all of them.
// uses    lib/work.wgsl
// Sums of row r of the invocation (row r % 2 of pair r / 2) and token t0 + t at t * 2 P + r.
fn products(work: Work, t0: u32, n_tokens: u32) -> array<f32, 2 * {P} * {T}> {
  // repeat t in 0..T
  let at{t} = min(t0 + {t}u, n_tokens - 1u) * (X_STRIDE / 4u);
  // end
  var sums: array<f32, 2 * {P} * {T}>;
  var block = 0u;
  loop {
    // repeat c in 0..C
    // repeat t in 0..T
    let z{c}_{t} = activations(at{t} + 8u * (block + {c}u), work.lane);
    // end
    // end
    let row0 = first_cell(work) + 32u * block;
    var r = 0u;
    loop {
      let cell = row0 + cells_to(r);
      // repeat c in 0..C
      let w{c} = words(cell + 32u * {c}u);
      // repeat i in 0..4
      let a{c}_{i} = a{i}(w{c});
      let b{c}_{i} = b{i}(w{c});
      // repeat t in 0..T
      let s{c}_{i}_{t} = dot(a{c}_{i}, z{c}_{t}.a{i}) + dot(b{c}_{i}, z{c}_{t}.b{i});
      // end
      // end
      // end
      // repeat t in 0..T
      sums[{t}u * (2u * {P}u) + r] = sums[{t}u * (2u * {P}u) + r]
      // repeat c in 0..C
        + scaled((s{c}_0_{t} + s{c}_1_{t}) + (s{c}_2_{t} + s{c}_3_{t}), w{c}.dm, z{c}_{t}.sums)
      // end
      ;
      // end
      continuing {
        r++;
        break if r >= 2u * {P}u;
      }
    }
    continuing {
      block += {C}u;
      break if block >= N_BLOCKS;
    }
  }
  return sums;
}
