// qkv: the attention's norm, its three projections, rope, and the write into the cache.
//   (q, k, v) = W h / rms(x)      q and k turned by their position's angles: (a, b) -> (a cos - b sin, a sin + b cos)
// shapes  q, s: W (N_ROWS, N_EMBD) in tiles, rows of q, k and v, each from a multiple of 32 on   h (n_tokens, X_STRIDE)
//         partials (n_tokens, N_PARTIALS)   angles (n_ctx, N_ROT / 2) (cos, sin)   q_out (n_tokens, Q_STRIDE)
//         k_cache, v_cache (N_CTX, N_EMBD_KV) as cache/<C>.wgsl   else f32
// grid    x, y: ceil(N_ROWS / (2 P WG)) workgroups, folded; z: ceil(n_tokens / T)
// tile    P pairs of rows x T tokens per invocation
// uses    lib/now.wgsl rows/<R>.wgsl lib/rms.wgsl load/<S>.wgsl quant/<Q>.wgsl cache/<C>.wgsl
// error   1.2e-7 * (sqrt(N_EMBD) + 12) * rms scale * sum_i spread_i |h_i| over both rows of a pair; what is cached: + that of cache/<C>.wgsl
// source  Su et al. 2021, arXiv:2104.09864; adjacent pairs = ggml's GGML_ROPE_TYPE_NORMAL
override N_EMBD: u32;          // row length, elements
override N_PARTIALS: u32;      // partial sums of squares of a row
override EPS: f32;
override N_EMBD_Q: u32;        // rows of q
override N_EMBD_KV: u32;       // rows of k, and of v
override Q_STRIDE: u32;        // elements from one row of q_out to the next
override N_ROT: u32;           // elements of a head, all turned
override ROPE: bool = true;    // or none of them
override N_CTX: u32;           // positions in the cache
override WG: u32 = 64u;        // power of two
@group(0) @binding(2) var<storage, read>       x: array<vec4f>;         // h (n_tokens, X_STRIDE / 4)
@group(0) @binding(3) var<storage, read>       partials: array<f32>;    // (n_tokens, N_PARTIALS)
@group(0) @binding(4) var<storage, read>       angles: array<vec2f>;    // (n_ctx, N_ROT / 2)
@group(0) @binding(5) var<uniform>             now: Now;                // n_past, n_tokens
@group(0) @binding(6) var<storage, read_write> q_out: array<f32>;       // (n_tokens, Q_STRIDE)
@group(0) @binding(7) var<storage, read_write> k_cache: array<Cached>;  // (N_CTX, N_EMBD_KV)
@group(0) @binding(8) var<storage, read_write> v_cache: array<Cached>;  // (N_CTX, N_EMBD_KV)

fn store(t: u32, row: u32, v: vec2f) {
  let position = now.n_past + t;
  let k0 = (N_EMBD_Q + 31u) / 32u * 32u;
  let v0 = k0 + (N_EMBD_KV + 31u) / 32u * 32u;
  if (row >= ROW0 + N_ROWS || t >= now.n_tokens || position >= N_CTX) {
    return;
  }
  if (row >= v0) {
    if (row - v0 < N_EMBD_KV) {
      v_cache[position * N_EMBD_KV + row - v0] = cached(v.x);
      v_cache[position * N_EMBD_KV + row - v0 + 1u] = cached(v.y);
    }
    return;
  }
  let i = select(row - k0, row, row < k0);
  var turn = vec2f(1.0, 0.0);
  if (ROPE) {
    turn = angles[position * (N_ROT / 2u) + i % N_ROT / 2u];
  }
  let turned = vec2f(v.x * turn.x - v.y * turn.y, v.x * turn.y + v.y * turn.x);
  if (row < N_EMBD_Q) {
    q_out[t * Q_STRIDE + i] = turned.x;
    q_out[t * Q_STRIDE + i + 1u] = turned.y;
  } else if (row >= k0 && i < N_EMBD_KV) {
    k_cache[position * N_EMBD_KV + i] = cached(turned.x);
    k_cache[position * N_EMBD_KV + i + 1u] = cached(turned.y);
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
      store(t0 + t, work.row + 8u * p, vec2f(sums[at], sums[at + 1u]) * scale);
    }
  }
}
