// linear: a product on its own, of a normed row or any other, with what may come at its end.
//   y[t,row] = activated?(W x[t] / rms(x[t]) + b[row])      the norm, the bias and the activation each if asked for
// shapes  q, s: W (N_ROWS, N_IN) in tiles   x (n_tokens, X_STRIDE), zero from N_IN on   partials (n_tokens, N_PARTIALS)
//         b (rows of the whole matrix), read with BIAS only   y (n_tokens, Y_STRIDE)   all f32
// grid    x, y: ceil(N_ROWS / (2 P WG)) workgroups, folded; z: ceil(n_tokens / T)
// tile    P pairs of rows x T tokens per invocation; no result depends on how many
// uses    lib/now.wgsl rows/<R>.wgsl lib/rms.wgsl lib/activation.wgsl load/<S>.wgsl quant/<Q>.wgsl
// error   1.2e-7 * (sqrt(N_IN) + 12) * rms scale * sum_i spread_i |x_i|, + 6e-8 |y|, + lib/activation.wgsl's
// source  ggml_mul_mat, ggml_add, ggml_gelu
override N_EMBD: u32 = 0u;     // row length of what was normed, elements
override N_PARTIALS: u32 = 0u; // partial sums of squares of a row
override EPS: f32 = 0.0;
override BIAS: bool = false;
override ACTIVATE: bool = false;
override Y_STRIDE: u32;        // elements from one row of y to the next
override WG: u32 = 64u;        // power of two
@group(0) @binding(2) var<storage, read>       x: array<vec4f>;         // (n_tokens, X_STRIDE / 4)
@group(0) @binding(3) var<storage, read>       partials: array<f32>;    // (n_tokens, N_PARTIALS)
@group(0) @binding(4) var<storage, read>       b: array<f32>;           // (rows of the whole matrix)
@group(0) @binding(5) var<uniform>             now: Now;                // n_tokens
@group(0) @binding(6) var<storage, read_write> y: array<f32>;           // (n_tokens, Y_STRIDE)

fn store(t: u32, row: u32, sum: f32) {
  if (row < ROW0 + N_ROWS && t < now.n_tokens) {
    var value = sum;
    if (BIAS) {
      value += b[row];
    }
    if (ACTIVATE) {
      value = activated(value);
    }
    y[t * Y_STRIDE + row] = value;
  }
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) workgroup: vec3u, @builtin(num_workgroups) count: vec3u,
        @builtin(local_invocation_index) index: u32) {
  let t0 = workgroup.z * {T}u;
  if (t0 >= now.n_tokens) {
    return;
  }
  let work = work_of(flat_workgroup(workgroup, count) * WG + index);
  var sums = products(work, t0, now.n_tokens);
  for (var t = 0u; t < {T}u; t++) {
    let scale = rms_scale(min(t0 + t, now.n_tokens - 1u), work.lane);
    for (var p = 0u; p < {P}u && work.live; p++) {
      let at = 2u * (t * {P}u + p);
      store(t0 + t, work.row + 8u * p, sums[at] * scale);
      store(t0 + t, work.row + 8u * p + 1u, sums[at + 1u] * scale);
    }
  }
}
