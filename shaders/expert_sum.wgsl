// expert_sum: what a token's experts gave, by their weights.
//   y[t,i] = sum_s w[t,s] * x[t,s,i]
// shapes  x (n_tokens, N_USED, STRIDE)   w (n_tokens, N_USED)   y (n_tokens, STRIDE)      all f32
// grid    x, y: ceil(STRIDE / WG) workgroups, folded; z: one per token
// uses    lib/now.wgsl lib/grid.wgsl
// error   1.2e-7 * N_USED * sum_s |w x|
// source  Shazeer et al. 2017, arXiv:1701.06538
override N_USED: u32;          // experts of a token
override STRIDE: u32;          // elements of a row
override WG: u32 = 64u;        // power of two
@group(0) @binding(0) var<storage, read>       x: array<f32>;           // (n_tokens, N_USED, STRIDE)
@group(0) @binding(1) var<storage, read>       w: array<f32>;           // (n_tokens, N_USED)
@group(0) @binding(2) var<uniform>             now: Now;                // n_tokens
@group(0) @binding(3) var<storage, read_write> y: array<f32>;           // (n_tokens, STRIDE)

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) workgroup: vec3u, @builtin(num_workgroups) count: vec3u,
        @builtin(local_invocation_index) index: u32) {
  let i = flat_workgroup(workgroup, count) * WG + index;
  let t = workgroup.z;
  if (i >= STRIDE || t >= now.n_tokens) {
    return;
  }
  var sum = 0.0;
  for (var s = 0u; s < N_USED; s++) {
    sum += w[t * N_USED + s] * x[(t * N_USED + s) * STRIDE + i];
  }
  y[t * STRIDE + i] = sum;
}
