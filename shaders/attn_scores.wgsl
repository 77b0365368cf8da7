// attn_scores: scaled dot products of each query head with all keys up to its own position (causal).
//   s[t,h,p] = SCALE * sum_d q[t,h,d] * k_cache[p, h / N_GROUP, d]       for p <= n_past + t, with CAP
//   CAP * tanh(s / CAP) of it
// shapes  q (n_tokens, Q_STRIDE) = (n_tokens, N_HEAD, N_EMBD_HEAD)   k_cache (n_ctx, N_EMBD_KV)
//         s (n_tokens, N_HEAD, N_CTX)                        all f32, the cache as cache/<C>.wgsl
// grid    x, y: ceil(n_kv / WG) workgroups, folded, n_kv >= n_past + n_tokens; z: n_tokens * N_HEAD
// uses    lib/state.wgsl lib/grid.wgsl lib/cap.wgsl cache/<C>.wgsl
// error   1.2e-7 * sqrt(N_EMBD_HEAD) * SCALE * sum_d |q k|, + lib/cap.wgsl's
// source  Vaswani et al. 2017, arXiv:1706.03762; grouped queries: Ainslie et al. 2023, arXiv:2305.13245
override N_HEAD: u32;          // query heads
override N_GROUP: u32;         // query heads that share a key head
override N_EMBD_HEAD: u32;     // elements of a head, a multiple of 4
override N_EMBD_KV: u32;       // elements of a cache row
override Q_STRIDE: u32;        // elements from one row of q to the next
override N_CTX: u32;           // positions in a row of s
override SCALE: f32;
override WG: u32 = 64u;        // power of two
@group(0) @binding(0) var<storage, read>       q: array<vec4f>;         // (n_tokens, Q_STRIDE / 4)
@group(0) @binding(1) var<storage, read>       k_cache: array<Cached4>; // (n_ctx, N_EMBD_KV / 4)
@group(0) @binding(2) var<storage, read>       state: State;            // n_past, n_tokens
@group(0) @binding(3) var<storage, read_write> s: array<f32>;           // (n_tokens, N_HEAD, N_CTX)

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) workgroup: vec3u, @builtin(num_workgroups) count: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let p = flat_workgroup(workgroup, count) * WG + lane;
  let t = workgroup.z / N_HEAD;
  let head = workgroup.z % N_HEAD;
  if (t >= state.n_tokens || p > state.n_past + t || p >= N_CTX) {
    return;
  }
  let query = (t * Q_STRIDE + head * N_EMBD_HEAD) / 4u;
  let key = (p * N_EMBD_KV + (head / N_GROUP) * N_EMBD_HEAD) / 4u;
  var sum = 0.0;
  for (var d = 0u; d < N_EMBD_HEAD / 4u; d++) {
    sum += dot(q[query + d], vec4f(k_cache[key + d]));
  }
  s[(t * N_HEAD + head) * N_CTX + p] = capped(sum * SCALE);
}
