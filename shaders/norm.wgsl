// norm: scale rows to unit root-mean-square, or unit deviation from their mean, then by a learned gain.
//   y[t,r,i] = (x[t,r,i] - m) / sqrt(mean_j (x[t,r,j] - m)^2 + EPS) * w[i] (+ b[i])      m = 0, or with MEAN mean_j x
// shapes  x, y (n_tokens, STRIDE), ROWS rows of N_EMBD elements in each   w (N_EMBD), or with OWN (ROWS, N_EMBD)
//         b (N_EMBD), read with BIAS only   all f32
// grid    z: one workgroup of WG invocations per row
// uses    lib/state.wgsl lib/reduce.wgsl
// error   relative 4e-6 + 3e-8 sqrt(N_EMBD) against float64: WG running sums, a tree, inverseSqrt (2 ulp); the
//         second is for one running sum at WG = 1. With MEAN + (4e-7 + 3e-8 sqrt(N_EMBD)) * max |x| / deviation,
//         before the gain; with BIAS + 6e-8
// source  Zhang & Sennrich 2019, arXiv:1910.07467; Ba et al. 2016, arXiv:1607.06450
override N_EMBD: u32;          // row length, elements
override ROWS: u32 = 1u;       // rows of a token
override STRIDE: u32;          // elements from one token to the next
override EPS: f32;
override MEAN: bool = false;
override BIAS: bool = false;
override OWN: bool = false;    // every row of a token has a gain of its own
override WG: u32 = 64u;        // power of two
@group(0) @binding(0) var<storage, read>       x: array<f32>;       // (n_tokens, STRIDE)
@group(0) @binding(1) var<storage, read>       w: array<f32>;       // (N_EMBD) or (ROWS, N_EMBD)
@group(0) @binding(2) var<storage, read>       b: array<f32>;       // (N_EMBD)
@group(0) @binding(3) var<storage, read>       state: State;        // n_tokens
@group(0) @binding(4) var<storage, read_write> y: array<f32>;       // (n_tokens, STRIDE)

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) workgroup: vec3u, @builtin(local_invocation_index) lane: u32) {
  let t = workgroup.z / ROWS;
  let r = workgroup.z % ROWS;
  let row = t * STRIDE + r * N_EMBD;
  var mean = 0.0;
  if (MEAN) {
    var sum = 0.0;
    for (var i = lane; i < N_EMBD; i += WG) {
      sum += x[row + i];
    }
    mean = reduce_sum(sum, lane) / f32(N_EMBD);
  }
  var squares = 0.0;
  for (var i = lane; i < N_EMBD; i += WG) {
    let v = x[row + i] - mean;
    squares += v * v;
  }
  let scale = inverseSqrt(reduce_sum(squares, lane) / f32(N_EMBD) + EPS);
  if (t >= state.n_tokens) {
    return;
  }
  for (var i = lane; i < N_EMBD; i += WG) {
    var v = (x[row + i] - mean) * scale * w[select(0u, r * N_EMBD, OWN) + i];
    if (BIAS) {
      v += b[i];
    }
    y[row + i] = v;
  }
}
