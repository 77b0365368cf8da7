// loop: the products of an invocation's rows with one row of x (T = 1), one row after another, C blocks at a time.
// The loop is short machine code with its sums in memory: right where code that does not fit the instruction cache
// costs more than they do. What is alive at a time is little, and the loops end with their condition: where lanes
// are masked, one that starts with it runs once more for nothing.
// uses    lib/work.wgsl
// Sums of row r of the invocation (row r % 2 of pair r / 2).
fn products(work: Work, t0: u32, n_tokens: u32) -> array<f32, 2 * {P} * {T}> {
  let at = t0 * (X_STRIDE / 4u);
  var sums: array<f32, 2 * {P} * {T}>;
  var block = 0u;
  loop {
    // repeat c in 0..C
    let z{c} = activations(at + 8u * (block + {c}u), work.lane);
    // end
    let row0 = first_cell(work) + 32u * block;
    var r = 0u;
    loop {
      let cell = row0 + cells_to(r);
      // repeat c in 0..C
      let sum{c} = product(words(cell + 32u * {c}u), z{c});
      // end
      sums[r] = sums[r]
      // repeat c in 0..C
        + sum{c}
      // end
      ;
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

// A cell times 32 activations, a quarter unpacked after the other.
fn product(w: Words, z: Activations) -> f32 {
  let low = (dot(a0(w), z.a0) + dot(b0(w), z.b0)) + (dot(a1(w), z.a1) + dot(b1(w), z.b1));
  let high = (dot(a2(w), z.a2) + dot(b2(w), z.b2)) + (dot(a3(w), z.a3) + dot(b3(w), z.b3));
  return scaled(low + high, w.dm, z.sums);
}
