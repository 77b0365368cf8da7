// attn_values: the weighted mean of the cached values for each query head.
//   y[t,h,d] = sum_p s[t,h,p] * v_cache[p, h / N_GROUP, d]       over n_past + t - WINDOW < p <= n_past + t
// shapes  s (n_tokens, N_HEAD, N_CTX)   v_cache (n_ctx, N_EMBD_KV)
//         y (n_tokens, Y_STRIDE) = (n_tokens, N_HEAD, N_EMBD_HEAD)
// grid    x, y: ceil(N_HEAD * N_EMBD_HEAD / 4 / WG) workgroups, folded; z: one per token
// uses    lib/state.wgsl lib/grid.wgsl cache/<C>.wgsl
// error   1.2e-7 * sqrt(n) * sum_p |s v| over n positions, in 64-position partial sums
// source  Vaswani et al. 2017, arXiv:1706.03762
override N_HEAD: u32;          // query heads
override N_GROUP: u32;         // query heads that share a value head
override N_EMBD_HEAD: u32;     // elements of a head, a multiple of 4
override N_EMBD_KV: u32;       // elements of a cache row
override N_CTX: u32;           // positions in a row of s
override Y_STRIDE: u32;        // elements from one row of y to the next
override WINDOW: u32 = 0u;     // last positions that a token sees; 0: all
override WG: u32 = 64u;        // power of two
@group(0) @binding(0) var<storage, read>       s: array<f32>;           // (n_tokens, N_HEAD, N_CTX)
@group(0) @binding(1) var<storage, read>       v_cache: array<Cached4>; // (n_ctx, N_EMBD_KV / 4)
@group(0) @binding(2) var<storage, read>       state: State;            // n_past, n_tokens
@group(0) @binding(3) var<storage, read_write> y: array<vec4f>;         // (n_tokens, Y_STRIDE / 4)

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) workgroup: vec3u, @builtin(num_workgroups) count: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let i = flat_workgroup(workgroup, count) * WG + lane;
  let t = workgroup.z;
  if (i >= N_HEAD * N_EMBD_HEAD / 4u || t >= state.n_tokens) {
    return;
  }
  let head = i / (N_EMBD_HEAD / 4u);
  let row = (t * N_HEAD + head) * N_CTX;
  let column = (head / N_GROUP) * (N_EMBD_HEAD / 4u) + i % (N_EMBD_HEAD / 4u);
  let n = min(state.n_past + t + 1u, N_CTX);
  var sum = vec4f(0.0);
  for (var start = select(0u, max(n, WINDOW) - WINDOW, WINDOW > 0u); start < n; start += 64u) {
    var part = vec4f(0.0);  // partial sums keep the rounding error of long contexts small
    for (var p = start; p < min(start + 64u, n); p++) {
      part += s[row + p] * vec4f(v_cache[p * (N_EMBD_KV / 4u) + column]);
    }
    sum += part;
  }
  y[t * (Y_STRIDE / 4u) + i] = sum;
}
