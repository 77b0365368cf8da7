// attention_combine: put the stretches of `attention` together.
//   y = sum_i exp(m_i - m) o_i / sum_i exp(m_i - m) l_i        m = max_i m_i
// shapes  o (n_tokens, N_SPLIT, Q_STRIDE)   ml (n_tokens, N_SPLIT, N_HEAD) pairs   y (n_tokens, Q_STRIDE)   all f32
// grid    x, y: ceil(N_HEAD * N_EMBD_HEAD / 4 / WG) workgroups, folded; z: one per token
// uses    lib/now.wgsl lib/grid.wgsl
// error   1.2e-7 * (N_SPLIT + 4) * sum_i |o_i| / sum_i exp(m_i - m) l_i
// source  Dao et al. 2023, flash-decoding
override N_HEAD: u32;          // query heads
override N_EMBD_HEAD: u32;     // elements of a head, a multiple of 4
override Q_STRIDE: u32;        // elements from one row of y to the next
override SPLIT: u32;           // positions of a stretch
override N_SPLIT: u32;         // stretches that o has room for
override WINDOW: u32 = 0u;     // last positions that a token sees; 0: all
override WG: u32 = 64u;        // power of two
@group(0) @binding(0) var<storage, read>       o: array<vec4f>;         // (n_tokens, N_SPLIT, Q_STRIDE / 4)
@group(0) @binding(1) var<storage, read>       ml: array<vec2f>;        // (n_tokens, N_SPLIT, N_HEAD)
@group(0) @binding(2) var<uniform>             now: Now;                // n_past, n_tokens
@group(0) @binding(3) var<storage, read_write> y: array<vec4f>;         // (n_tokens, Q_STRIDE / 4)

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) workgroup: vec3u, @builtin(num_workgroups) count: vec3u,
        @builtin(local_invocation_index) index: u32) {
  let i = flat_workgroup(workgroup, count) * WG + index;
  let t = workgroup.z;
  if (i >= N_HEAD * N_EMBD_HEAD / 4u || t >= now.n_tokens) {
    return;
  }
  let head = i / (N_EMBD_HEAD / 4u);
  let n = min((now.n_past + t) / SPLIT + 1u, N_SPLIT);  // stretches that this token sees
  let first = select(0u, (max(now.n_past + t + 1u, WINDOW) - WINDOW) / SPLIT, WINDOW > 0u);
  var m = -3.4028234e38;
  for (var j = first; j < n; j++) {
    m = max(m, ml[(t * N_SPLIT + j) * N_HEAD + head].x);
  }
  var sum = vec4f(0.0);
  var l = 0.0;
  for (var j = first; j < n; j++) {
    let part = ml[(t * N_SPLIT + j) * N_HEAD + head];
    let weight = exp(part.x - m);
    l += part.y * weight;
    sum += o[(t * N_SPLIT + j) * (Q_STRIDE / 4u) + i] * weight;
  }
  y[t * (Q_STRIDE / 4u) + i] = sum / l;
}
