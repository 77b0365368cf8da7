// gate_up: the feed-forward norm, its two projections and the gated activation.
//   y[t,i] = activated(gate) * up       (gate, up) = rows 2 i and 2 i + 1 of W h[t] / rms(x[t])
// shapes  q, s: W (2 N_FF, N_EMBD) in tiles, gate and up alternating   h (n_tokens, X_STRIDE)
//         partials (n_tokens, N_PARTIALS)   y (n_tokens, Y_STRIDE)   all f32
// grid    x, y: ceil(N_ROWS / (2 P WG)) workgroups, folded; z: ceil(n_tokens / T)
// tile    P pairs of rows x T tokens per invocation
// uses    lib/now.wgsl rows/<R>.wgsl lib/rms.wgsl lib/activation.wgsl load/<S>.wgsl quant/<Q>.wgsl
// error   lib/activation.wgsl's + 6e-7, beside what the products leave
// source  Shazeer 2020, arXiv:2002.05202
override N_EMBD: u32;          // row length, elements
override N_PARTIALS: u32;      // partial sums of squares of a row
override EPS: f32;
override Y_STRIDE: u32;        // elements from one row of y to the next
override WG: u32 = 64u;        // power of two
@group(0) @binding(2) var<storage, read>       x: array<vec4f>;         // h (n_tokens, X_STRIDE / 4)
@group(0) @binding(3) var<storage, read>       partials: array<f32>;    // (n_tokens, N_PARTIALS)
@group(0) @binding(4) var<uniform>             now: Now;                // n_tokens
@group(0) @binding(5) var<storage, read_write> y: array<f32>;           // (n_tokens, Y_STRIDE)

fn store(t: u32, row: u32, gate: f32, up: f32) {
  if (row < ROW0 + N_ROWS && t < now.n_tokens) {
    y[t * Y_STRIDE + row / 2u] = activated(gate) * up;
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
      store(t0 + t, work.row + 8u * p, sums[at] * scale, sums[at + 1u] * scale);
    }
  }
}
