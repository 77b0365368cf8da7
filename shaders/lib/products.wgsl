// products: 2 P rows of a quantised matrix times T rows of x, by one invocation, without barriers. Each weight
// is unpacked once for T tokens, each activation loaded once for 2 P rows. The result is an array, so that what is
// done with the sums can be a loop: unrolled it would take longer to compile than the products.
// uses    lib/cell.wgsl lib/activations.wgsl lib/grid.wgsl
override N_BLOCKS: u32;        // blocks of 32 in a row of W and x
override N_ROWS: u32;          // rows to compute
override FIRST: u32 = 0u;      // where they start in this buffer, a multiple of 32
override ROW0: u32 = 0u;       // what the first one's number is in the whole matrix
override X_STRIDE: u32;        // elements from one row of x to the next, a multiple of 32

// What an invocation computes: pair p is rows row + 8 p and row + 8 p + 1. One past the matrix repeats the
// last rows, so that all take the same way through shared operations, and must not store.
struct Work {
  cell: u32,  // of block 0 of its first row
  lane: u32,  // 0…3
  row: u32,   // its first row, counted from the start of the whole matrix
  unit: u32,  // which group of 8 P rows of the whole matrix
  live: bool,  // false past the last tile
}

fn work_of(invocation: u32) -> Work {
  let end = (N_ROWS + 31u) / 32u * 32u;  // rows past the last in its tile are zero; their sums are stored as such
  let wanted = invocation / 4u * (8u * {P}u);
  let first = min(wanted, end - 8u * {P}u);
  let lane = invocation % 4u;
  let cell = (FIRST + first) / 32u * (N_BLOCKS * 32u) + first % 32u + lane;
  return Work(cell, lane, ROW0 + first + 2u * lane, (ROW0 + first) / (8u * {P}u), wanted < end);
}

fn product(w: Cell, z: Activations) -> f32 {
  let sum = ((dot(w.a0, z.a0) + dot(w.b0, z.b0)) + (dot(w.a1, z.a1) + dot(w.b1, z.b1)))
          + ((dot(w.a2, z.a2) + dot(w.b2, z.b2)) + (dot(w.a3, z.a3) + dot(w.b3, z.b3)));
  return scaled(sum, w.dm, z.sums);
}

// Sums of pair p and token t0 + t at t * P + p: (even row, odd row).
fn products(work: Work, t0: u32, n_tokens: u32) -> array<vec2f, {P} * {T}> {
  var cell = work.cell;
  // repeat t in 0..T
  var at{t} = min(t0 + {t}u, n_tokens - 1u) * (X_STRIDE / 4u);
  // end
  // repeat p in 0..P
  // repeat t in 0..T
  var a{p}_{t} = 0.0;
  var b{p}_{t} = 0.0;
  // end
  // end
  for (var block = 0u; block < N_BLOCKS; block++) {
    // repeat t in 0..T
    let z{t} = activations(at{t}, work.lane);
    at{t} += 8u;
    // end
    // repeat p in 0..P
    let even{p} = unpack(cell + {p}u / 4u * (N_BLOCKS * 32u) + {p}u % 4u * 8u);
    // repeat t in 0..T
    a{p}_{t} += product(even{p}, z{t});
    // end
    let odd{p} = unpack(cell + {p}u / 4u * (N_BLOCKS * 32u) + {p}u % 4u * 8u + 4u);
    // repeat t in 0..T
    b{p}_{t} += product(odd{p}, z{t});
    // end
    // end
    cell += 32u;
  }
  var sums: array<vec2f, {P} * {T}>;
  // repeat p in 0..P
  // repeat t in 0..T
  sums[{t} * {P} + {p}] = vec2f(a{p}_{t}, b{p}_{t});
  // end
  // end
  return sums;
}
