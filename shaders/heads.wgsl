// heads: queries and keys made ready for attention, and the write into the cache.
//   of each head of q and k: its norm (with ROW that of its row), if any, then rope, if any; v as it is
//   norm (x - m) / sqrt(mean (x - m)^2 + EPS) * gain, m = 0 or with MEAN the mean; rope as in rope.wgsl
// shapes  qkv (n_tokens, STRIDE): q, k and v, each from a multiple of 32 on   angles (n_ctx, N_ROT / 2) (cos, sin)
//         q_gain, k_gain (N_EMBD_HEAD), or with OWN (heads, N_EMBD_HEAD), read with NORM only
//         q (n_tokens, Q_STRIDE)   k_cache, v_cache (N_CTX, N_EMBD_KV)   all f32, the caches as cache/<C>.wgsl
// grid    z: one workgroup of WG invocations per token and head of q, k and v
// uses    lib/now.wgsl lib/reduce.wgsl cache/<C>.wgsl
// error   norm.wgsl's and rope.wgsl's
// source  norm.wgsl, rope.wgsl; ggml_set_rows
override N_HEAD: u32;          // query heads
override N_HEAD_KV: u32;       // key heads, and value heads
override N_EMBD_HEAD: u32;     // elements of a head
override STRIDE: u32;          // elements from one token of qkv to the next
override Q_STRIDE: u32;        // elements from one token of q to the next
override N_CTX: u32;           // positions in the cache
override N_ROT: u32;           // elements of a head that rope turns; 0: none
override NEOX: bool = false;
override NORM: bool = false;
override MEAN: bool = false;
override OWN: bool = false;    // every head has a gain of its own
override ROW: bool = false;    // the norm is that of all heads of q, or of k, together
override EPS: f32 = 0.0;
override WG: u32 = 64u;        // power of two
@group(0) @binding(0) var<storage, read>       qkv: array<f32>;         // (n_tokens, STRIDE)
@group(0) @binding(1) var<storage, read>       angles: array<vec2f>;    // (n_ctx, N_ROT / 2)
@group(0) @binding(2) var<storage, read>       q_gain: array<f32>;      // (N_EMBD_HEAD) or (N_HEAD, N_EMBD_HEAD)
@group(0) @binding(3) var<storage, read>       k_gain: array<f32>;      // (N_EMBD_HEAD) or (N_HEAD_KV, N_EMBD_HEAD)
@group(0) @binding(4) var<uniform>             now: Now;                // n_past, n_tokens
@group(0) @binding(5) var<storage, read_write> k_cache: array<Cached>;  // (N_CTX, N_HEAD_KV * N_EMBD_HEAD)
@group(0) @binding(6) var<storage, read_write> v_cache: array<Cached>;  // (N_CTX, N_HEAD_KV * N_EMBD_HEAD)
@group(0) @binding(7) var<storage, read_write> q: array<f32>;           // (n_tokens, Q_STRIDE)

// Element i of a head after its norm.
fn normed(at: u32, i: u32, mean: f32, scale: f32, query: bool, head: u32) -> f32 {
  let x = qkv[at + i];
  if (!NORM) {
    return x;
  }
  let j = select(0u, head * N_EMBD_HEAD, OWN) + i;
  if (query) {
    return (x - mean) * scale * q_gain[j];
  }
  return (x - mean) * scale * k_gain[j];
}

fn put(query: bool, to: u32, i: u32, value: f32) {
  if (query) {
    q[to + i] = value;
  } else {
    k_cache[to + i] = cached(value);
  }
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) workgroup: vec3u, @builtin(local_invocation_index) lane: u32) {
  let heads = N_HEAD + 2u * N_HEAD_KV;
  let t = workgroup.z / heads;
  let unit = workgroup.z % heads;
  let query = unit < N_HEAD;
  let value = unit >= N_HEAD + N_HEAD_KV;
  let head = select(select(unit - N_HEAD, unit, query), unit - N_HEAD - N_HEAD_KV, value);
  let k0 = (N_HEAD * N_EMBD_HEAD + 31u) / 32u * 32u;
  let v0 = k0 + (N_HEAD_KV * N_EMBD_HEAD + 31u) / 32u * 32u;
  let section = t * STRIDE + select(select(k0, 0u, query), v0, value);
  let at = section + head * N_EMBD_HEAD;
  let position = now.n_past + t;
  let live = t < now.n_tokens && position < N_CTX;
  let row = position * (N_HEAD_KV * N_EMBD_HEAD) + head * N_EMBD_HEAD;  // of a cache
  var mean = 0.0;
  var scale = 1.0;
  if (NORM) {  // all take part, for the barriers
    let first = select(at, section, ROW);
    let n = select(1u, select(N_HEAD_KV, N_HEAD, query), ROW) * N_EMBD_HEAD;
    if (MEAN) {
      var sum = 0.0;
      for (var i = lane; i < n; i += WG) {
        sum += qkv[first + i];
      }
      mean = reduce_sum(sum, lane) / f32(n);
    }
    var squares = 0.0;
    for (var i = lane; i < n; i += WG) {
      let x = qkv[first + i] - mean;
      squares += x * x;
    }
    scale = inverseSqrt(reduce_sum(squares, lane) / f32(n) + EPS);
  }
  if (!live) {
    return;
  }
  if (value) {
    for (var i = lane; i < N_EMBD_HEAD; i += WG) {
      v_cache[row + i] = cached(qkv[at + i]);
    }
    return;
  }
  let to = select(row, t * Q_STRIDE + head * N_EMBD_HEAD, query);
  for (var j = lane; j < N_ROT / 2u; j += WG) {
    let a = select(2u * j, j, NEOX);
    let b = a + select(1u, N_ROT / 2u, NEOX);
    let turn = angles[position * (N_ROT / 2u) + j];
    let x = normed(at, a, mean, scale, query, head);
    let y = normed(at, b, mean, scale, query, head);
    put(query, to, a, x * turn.x - y * turn.y);
    put(query, to, b, x * turn.y + y * turn.x);
  }
  for (var i = N_ROT + lane; i < N_EMBD_HEAD; i += WG) {
    put(query, to, i, normed(at, i, mean, scale, query, head));
  }
}
