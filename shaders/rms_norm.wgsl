// rms_norm: scale each row to unit root-mean-square, then by a learned gain.
//   y[t,i] = x[t,i] / sqrt(mean_j x[t,j]^2 + EPS) * w[i]
// shapes  x (n_tokens, STRIDE)   w (N_EMBD)   y (n_tokens, STRIDE)          all f32
// grid    z: one workgroup of WG invocations per token
// uses    lib/state.wgsl lib/reduce.wgsl
// error   relative 4e-6 against float64: WG running sums, a tree, inverseSqrt (2 ulp)
// source  Zhang & Sennrich 2019, arXiv:1910.07467
override N_EMBD: u32;          // row length, elements
override STRIDE: u32;          // elements from one row to the next
override EPS: f32;
override WG: u32 = 64u;        // power of two
@group(0) @binding(0) var<storage, read>       x: array<f32>;       // (n_tokens, STRIDE)
@group(0) @binding(1) var<storage, read>       w: array<f32>;       // (N_EMBD)
@group(0) @binding(2) var<storage, read>       state: State;        // n_tokens
@group(0) @binding(3) var<storage, read_write> y: array<f32>;       // (n_tokens, STRIDE)

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) workgroup: vec3u, @builtin(local_invocation_index) lane: u32) {
  let row = workgroup.z * STRIDE;
  var squares = 0.0;
  for (var i = lane; i < N_EMBD; i += WG) {
    squares += x[row + i] * x[row + i];
  }
  let scale = inverseSqrt(reduce_sum(squares, lane) / f32(N_EMBD) + EPS);
  if (workgroup.z >= state.n_tokens) {
    return;
  }
  for (var i = lane; i < N_EMBD; i += WG) {
    y[row + i] = x[row + i] * scale * w[i];
  }
}
