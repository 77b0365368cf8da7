// matmul: y = x Wᵀ for quantised W.
//   y[t, row / STEP] = sum_i w[row,i] * x[t,i]      for rows with row % STEP = PHASE
// shapes  q, s: W (N_ROWS, N_IN) in tiles   x (n_tokens, X_STRIDE), zero from N_IN on   y (n_tokens, Y_STRIDE)   f32
// grid    x, y: ceil(N_ROWS / (2 P WG)) workgroups, folded; z: ceil(n_tokens / T)
// tile    P pairs of rows x T tokens per invocation; the order of additions does not depend on P, T or WG
// uses    lib/state.wgsl rows/<R>.wgsl load/<S>.wgsl quant/<Q>.wgsl
// error   1.2e-7 * (sqrt(N_IN) + 8) * sum_i spread_i |x_i|: sums of 32 in eight dots, then one running sum; spread
//         is the size of what a weight is put together from: |w|, or |d| times the largest quant plus |m|
// source  ggml_mul_mat
override STEP: u32 = 1u;       // matrices that alternate in W
override PHASE: u32 = 0u;      // which of them this is
override Y_STRIDE: u32;        // elements from one row of y to the next
override WG: u32 = 64u;        // power of two
@group(0) @binding(2) var<storage, read>       x: array<vec4f>;     // (n_tokens, X_STRIDE / 4)
@group(0) @binding(3) var<storage, read>       state: State;        // n_tokens
@group(0) @binding(4) var<storage, read_write> y: array<f32>;       // (n_tokens, Y_STRIDE)

fn store(t: u32, row: u32, value: f32) {
  if (row < ROW0 + N_ROWS && t < state.n_tokens && row % STEP == PHASE) {
    y[t * Y_STRIDE + row / STEP] = value;
  }
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) workgroup: vec3u, @builtin(num_workgroups) count: vec3u,
        @builtin(local_invocation_index) index: u32) {
  let t0 = workgroup.z * {T}u;
  if (t0 >= state.n_tokens) {
    return;
  }
  let work = work_of(flat_workgroup(workgroup, count) * WG + index);
  var sums = products(work, t0, state.n_tokens);
  if (work.live) {
    for (var i = 0u; i < {P}u * {T}u; i++) {
      let t = t0 + i / {P}u;
      let row = work.row + 8u * (i % {P}u);
      store(t, row, sums[2u * i]);
      store(t, row + 1u, sums[2u * i + 1u]);
    }
  }
}
