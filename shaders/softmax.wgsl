// softmax: turn each row of scores into weights that add up to one, in place.
//   s[t,h,p] = exp(s[t,h,p] - max_p s) / sum_p exp(s[t,h,p] - max_p s)       for n_past + t - WINDOW < p <= n_past + t
// shapes  s (n_tokens, N_HEAD, N_CTX) f32
// grid    z: n_tokens * N_HEAD workgroups of WG invocations, one per row
// uses    lib/state.wgsl lib/reduce.wgsl
// error   relative 2e-6 per unit of (max - s), + 4e-6: exp has 3 + 2|x| ulp in WGSL
// source  ggml_soft_max
override N_HEAD: u32;          // rows per token
override N_CTX: u32;           // elements from one row to the next
override WINDOW: u32 = 0u;     // last positions that a token sees; 0: all
override WG: u32 = 64u;        // power of two
@group(0) @binding(0) var<storage, read>       state: State;            // n_past, n_tokens
@group(0) @binding(1) var<storage, read_write> s: array<f32>;           // (n_tokens, N_HEAD, N_CTX)

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) workgroup: vec3u, @builtin(local_invocation_index) lane: u32) {
  let t = workgroup.z / N_HEAD;
  let row = workgroup.z * N_CTX;
  // a row past the last token has length 0; its workgroup still takes part in the barriers
  let n = select(0u, min(state.n_past + t + 1u, N_CTX), t < state.n_tokens);
  let first = select(0u, max(n, WINDOW) - WINDOW, WINDOW > 0u);
  var largest = -3.4028234e38;
  for (var p = first + lane; p < n; p += WG) {
    largest = max(largest, s[row + p]);
  }
  largest = reduce_max(largest, lane);
  var sum = 0.0;
  for (var p = first + lane; p < n; p += WG) {
    let e = exp(s[row + p] - largest);
    s[row + p] = e;
    sum += e;
  }
  let scale = 1.0 / reduce_sum(sum, lane);
  for (var p = first + lane; p < n; p += WG) {
    s[row + p] *= scale;
  }
}
