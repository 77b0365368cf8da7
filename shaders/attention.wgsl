// attention: softmax-weighted values of one stretch of the context, for the query heads that share one kv head.
//   o = sum_p exp(s_p - m) v_p      m = max_p s_p      l = sum_p exp(s_p - m)      s_p = capped(SCALE * q . k_p)
//   over its positions n_past + t - WINDOW < p <= n_past + t; of a single stretch o / l, else see attention_combine
// shapes  q (n_tokens, Q_STRIDE)   k_cache, v_cache (N_CTX, N_EMBD_KV)   o (n_tokens, N_SPLIT, Q_STRIDE)
//         ml (n_tokens, N_SPLIT, N_HEAD) pairs (m, l)   all f32, the caches as cache/<C>.wgsl
// grid    x, y: ceil(SHARERS * N_HEAD / G * stretches / WG) workgroups, folded; z: ceil(n_tokens / T)
// tile    G query heads of one kv head x T tokens per invocation, D vectors of 4 of a head in each of the SHARERS
// uses    lib/now.wgsl lib/grid.wgsl lib/cap.wgsl share/<S>.wgsl cache/<C>.wgsl
// error   relative to sum_p |weight v|: 1.2e-7 * (sqrt(SPLIT) + 4 + 4 r + 2 (m - s)), + what the scores leave; r: how
//         often a larger score comes later, for then the sums are multiplied by an exp of 3 + 2|x| ulp
// source  Dao et al. 2022, arXiv:2205.14135
override N_HEAD: u32;          // query heads
override N_GROUP: u32 = {G}u;  // query heads of one kv head, a multiple of G
override N_EMBD_HEAD: u32;     // elements of a head, a multiple of 4
override N_EMBD_KV: u32;       // elements of a cache row
override Q_STRIDE: u32;        // elements from one row of q to the next
override SPLIT: u32;           // positions of a stretch, a multiple of 4
override N_SPLIT: u32;         // stretches that o has room for
override WHOLE: bool = false;  // there is one, and nothing comes after it
override SCALE: f32;           // 1 / sqrt(N_EMBD_HEAD) in most
override WINDOW: u32 = 0u;     // last positions that a token sees; 0: all
override WG: u32 = 64u;        // power of two
@group(0) @binding(0) var<storage, read>       q: array<vec4f>;         // (n_tokens, Q_STRIDE / 4)
@group(0) @binding(1) var<storage, read>       k_cache: array<Cached4>; // (N_CTX, N_EMBD_KV / 4)
@group(0) @binding(2) var<storage, read>       v_cache: array<Cached4>; // (N_CTX, N_EMBD_KV / 4)
@group(0) @binding(3) var<uniform>             now: Now;                // n_past, n_tokens
@group(0) @binding(4) var<storage, read_write> ml: array<vec2f>;        // (n_tokens, N_SPLIT, N_HEAD)
@group(0) @binding(5) var<storage, read_write> o: array<vec4f>;         // (n_tokens, N_SPLIT, Q_STRIDE / 4)

const LOWEST = -3.4028234e38;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) workgroup: vec3u, @builtin(num_workgroups) count: vec3u,
        @builtin(local_invocation_index) index: u32) {
  let t0 = workgroup.z * {T}u;
  if (t0 >= now.n_tokens) {
    return;
  }
  let invocation = flat_workgroup(workgroup, count) * WG + index;
  let lane = invocation % SHARERS;
  let unit = invocation / SHARERS;
  let first = unit % (N_HEAD / {G}u) * {G}u;  // query head
  let head = first / N_GROUP;  // of keys and values
  let stretch = unit / (N_HEAD / {G}u);
  let start = stretch * SPLIT;
  let length = min(now.n_past + t0 + {T}u, now.n_past + now.n_tokens);  // positions the last token here sees
  let n = min(start + SPLIT, length);
  // vectors of a head that are another lane's, or past its end, count as zero
  // repeat d in 0..D
  let at{d} = {d}u * SHARERS + lane;
  let mine{d} = at{d} < N_EMBD_HEAD / 4u;
  let here{d} = min(at{d}, N_EMBD_HEAD / 4u - 1u);
  // repeat t in 0..T
  // repeat g in 0..G
  let q{g}_{t}_{d} = select(vec4f(0.0), SCALE * q[min(t0 + {t}u, now.n_tokens - 1u) * (Q_STRIDE / 4u)
      + (first + {g}u) * (N_EMBD_HEAD / 4u) + here{d}], mine{d});
  var o{g}_{t}_{d} = vec4f(0.0);
  // end
  // end
  // end
  // repeat t in 0..T
  // repeat g in 0..G
  var m{g}_{t} = LOWEST;
  var l{g}_{t} = 0.0;
  // end
  // end
  // four positions at a time: one rescaling of the sums for all of them. All lanes walk the whole stretch, for
  // the shared sums need them together; the last positions may repeat and weigh nothing. Loops end with their
  // condition, for the reason in rows/loop.wgsl; a stretch past the context is walked once, and not stored.
  var p = start;
  if (WINDOW > 0u) {
    p = max(p, (max(now.n_past + t0 + 1u, WINDOW) - WINDOW) & ~3u);  // where the first token's begins
  }
  loop {
    // repeat t in 0..T
    // repeat g in 0..G
    var s{g}_{t} = vec4f(0.0);
    // end
    // end
    var i = 0u;
    loop {
      let row = min(p + i, n - 1u) * (N_EMBD_KV / 4u) + head * (N_EMBD_HEAD / 4u);
      // repeat d in 0..D
      let k{d} = vec4f(k_cache[row + here{d}]);
      // end
      // repeat t in 0..T
      // repeat g in 0..G
      var s{g}_{t}_i = 0.0;
      // repeat d in 0..D
      s{g}_{t}_i += dot(q{g}_{t}_{d}, k{d});
      // end
      s{g}_{t}[i] = s{g}_{t}_i;
      // end
      // end
      continuing {
        i++;
        break if i >= 4u;
      }
    }
    let positions = vec4u(p, p + 1u, p + 2u, p + 3u);
    // repeat t in 0..T
    var seen{t} = positions < vec4u(min(n, now.n_past + t0 + {t}u + 1u));
    if (WINDOW > 0u) {
      seen{t} &= positions + WINDOW > vec4u(now.n_past + t0 + {t}u);
    }
    // repeat g in 0..G
    let c{g}_{t} = select(vec4f(LOWEST), capped4(share_sum4(s{g}_{t})), seen{t});
    let top{g}_{t} = max(m{g}_{t}, max(max(c{g}_{t}.x, c{g}_{t}.y), max(c{g}_{t}.z, c{g}_{t}.w)));
    let fade{g}_{t} = exp(m{g}_{t} - top{g}_{t});
    var e{g}_{t} = select(vec4f(0.0), exp(c{g}_{t} - top{g}_{t}), seen{t});
    m{g}_{t} = top{g}_{t};
    l{g}_{t} = l{g}_{t} * fade{g}_{t} + ((e{g}_{t}.x + e{g}_{t}.y) + (e{g}_{t}.z + e{g}_{t}.w));
    // end
    // end
    // repeat i in 0..4
    let row{i} = min(p + {i}u, n - 1u) * (N_EMBD_KV / 4u) + head * (N_EMBD_HEAD / 4u);
    // end
    // repeat d in 0..D
    // repeat i in 0..4
    let v{i}_{d} = vec4f(v_cache[row{i} + here{d}]);
    // end
    // repeat t in 0..T
    // repeat g in 0..G
    o{g}_{t}_{d} = o{g}_{t}_{d} * fade{g}_{t} + ((v0_{d} * e{g}_{t}.x + v1_{d} * e{g}_{t}.y)
        + (v2_{d} * e{g}_{t}.z + v3_{d} * e{g}_{t}.w));
    // end
    // end
    // end
    continuing {
      p += 4u;
      break if p >= n;
    }
  }
  // repeat t in 0..T
  let row{t} = (t0 + {t}u) * N_SPLIT + stretch;
  if (t0 + {t}u < now.n_tokens && start < length) {
    // repeat g in 0..G
    let whole{g}_{t} = select(1.0, l{g}_{t}, WHOLE);
    // repeat d in 0..D
    if (mine{d}) {
      o[row{t} * (Q_STRIDE / 4u) + (first + {g}u) * (N_EMBD_HEAD / 4u) + at{d}] = o{g}_{t}_{d} / whole{g}_{t};
    }
    // end
    if (lane == 0u) {
      ml[row{t} * N_HEAD + first + {g}u] = vec2f(m{g}_{t}, l{g}_{t});
    }
    // end
  }
  // end
}
