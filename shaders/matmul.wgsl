// matmul: y = x Wᵀ for quantised W. One thread computes R rows for T tokens, without barriers:
// each weight is unpacked once for T tokens, each activation loaded once for R rows.
//   y[t, ROW0 + r] = sum_i w[r,i] * x[t,i]
// shapes  w (N_ROWS, N_IN) quantised   x (n_tokens, X_STRIDE), zero from N_IN on   y (n_tokens, Y_STRIDE)   f32
// grid    x, y: ceil(N_ROWS / (R * WG)) workgroups, folded; z: ceil(n_tokens / T)
// tile    R rows x T tokens per invocation; the order of additions does not depend on R, T or WG
// uses    lib/state.wgsl lib/grid.wgsl quant/<Q>.wgsl
// error   1.2e-7 * (sqrt(N_IN) + 8) * sum_i |w x|: sums of 32 in eight dots, then one running sum
// source  ggml_mul_mat
override N_IN: u32;            // row length, elements
override N_ROWS: u32;          // rows in this slab
override ROW0: u32 = 0u;       // first row of this slab in the whole matrix
override X_STRIDE: u32;        // elements from one row of x to the next, a multiple of 32
override Y_STRIDE: u32;        // elements from one row of y to the next
override WG: u32 = 64u;        // power of two
@group(0) @binding(0) var<storage, read>       w: array<u32>;       // (N_ROWS, N_IN) as in the file
@group(0) @binding(1) var<storage, read>       x: array<vec4f>;     // (n_tokens, X_STRIDE / 4)
@group(0) @binding(2) var<storage, read>       state: State;        // n_tokens
@group(0) @binding(3) var<storage, read_write> y: array<f32>;       // (n_tokens, Y_STRIDE)

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) workgroup: vec3u, @builtin(num_workgroups) count: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let first = (flat_workgroup(workgroup, count) * WG + lane) * {R}u;
  let t0 = workgroup.z * {T}u;
  if (first >= N_ROWS || t0 >= state.n_tokens) {
    return;
  }
  // rows and tokens past the end repeat the last one; they are computed and not stored
  // repeat r in 0..R
  let row{r} = min(first + {r}u, N_ROWS - 1u);
  // end
  // repeat t in 0..T
  var at{t} = min(t0 + {t}u, state.n_tokens - 1u) * (X_STRIDE / 4u);
  // end
  // repeat r in 0..R
  // repeat t in 0..T
  var sum{r}_{t} = 0.0;
  // end
  // end
  for (var group = 0u; group < (N_IN + 31u) / 32u; group++) {
    // repeat t in 0..T
    // repeat i in 0..8
    let x{t}_{i} = x[at{t} + {i}u];
    // end
    at{t} += 8u;
    // end
    // repeat r in 0..R
    let q{r} = weights(row{r}, group);
    // repeat t in 0..T
    sum{r}_{t} += ((dot(q{r}.q0, x{t}_0) + dot(q{r}.q1, x{t}_1)) + (dot(q{r}.q2, x{t}_2) + dot(q{r}.q3, x{t}_3)))
        + ((dot(q{r}.q4, x{t}_4) + dot(q{r}.q5, x{t}_5)) + (dot(q{r}.q6, x{t}_6) + dot(q{r}.q7, x{t}_7)));
    // end
    // end
  }
  // repeat t in 0..T
  if (t0 + {t}u < state.n_tokens) {
    // repeat r in 0..R
    if (first + {r}u < N_ROWS) {
      y[(t0 + {t}u) * Y_STRIDE + ROW0 + first + {r}u] = sum{r}_{t};
    }
    // end
  }
  // end
}
