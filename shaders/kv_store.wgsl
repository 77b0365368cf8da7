// kv_store: append the keys and values of this pass to the cache.
//   k_cache[n_past + t, i] = k[t,i]      v_cache likewise
// shapes  k, v (n_tokens, STRIDE)   k_cache, v_cache (N_CTX, N_EMBD_KV) as cache/<C>.wgsl   else f32
// grid    x, y: ceil(N_EMBD_KV / WG) workgroups, folded; z: one per token
// uses    lib/state.wgsl lib/grid.wgsl cache/<C>.wgsl
// error   that of cache/<C>.wgsl; f32: exact
// source  a copy; ggml_set_rows
override N_EMBD_KV: u32;       // elements of a key or value row
override STRIDE: u32;          // elements from one row of k and v to the next
override N_CTX: u32;           // rows of the cache, tokens
override WG: u32 = 64u;        // power of two
@group(0) @binding(0) var<storage, read>       k: array<f32>;           // (n_tokens, STRIDE)
@group(0) @binding(1) var<storage, read>       v: array<f32>;           // (n_tokens, STRIDE)
@group(0) @binding(2) var<storage, read>       state: State;            // n_past, n_tokens
@group(0) @binding(3) var<storage, read_write> k_cache: array<Cached>;  // (N_CTX, N_EMBD_KV)
@group(0) @binding(4) var<storage, read_write> v_cache: array<Cached>;  // (N_CTX, N_EMBD_KV)

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) workgroup: vec3u, @builtin(num_workgroups) count: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let i = flat_workgroup(workgroup, count) * WG + lane;
  let t = workgroup.z;
  let position = state.n_past + t;
  if (i >= N_EMBD_KV || t >= state.n_tokens || position >= N_CTX) {
    return;
  }
  k_cache[position * N_EMBD_KV + i] = cached(k[t * STRIDE + i]);
  v_cache[position * N_EMBD_KV + i] = cached(v[t * STRIDE + i]);
}
