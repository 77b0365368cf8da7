// pack: activations rounded to 8 bits, those of two tokens in one number, for shaders/rows/packed.wgsl.
//   d = max |x| / 127, q = round(x / d) over 32 elements of a token      y = q of token t + 65536 q of token t + 1
// shapes  x (n_tokens, X_STRIDE)   y ((n_tokens + 1) / 2, X_STRIDE / 32, 9 vectors)   all f32
//         of y eight vectors are the block's 32 numbers in order, exact in f32; the ninth: d and d of the other
//         token, sum q and sum q. Without another token the last one stands in
// grid    x, y: ceil(X_STRIDE / 32 / WG) workgroups, folded; z: ceil(n_tokens / T)
// tile    T = 2 tokens per invocation
// uses    lib/grid.wgsl lib/now.wgsl
// error   q: 0.5 + 2e-5 from x / d; d relative 6e-7, 0 where max |x| < 1e-30; not finite where an element is not
// source  quantize_row_q8_1_ref in https://github.com/ggml-org/llama.cpp/blob/80fb11ac73e66d89eae2c6a91d8a77428fa733ed/ggml/src/ggml-quants.c
override X_STRIDE: u32;        // elements from one row of x to the next, a multiple of 32
override WG: u32 = 64u;        // power of two
@group(0) @binding(0) var<storage, read>       x: array<vec4f>;     // (n_tokens, X_STRIDE / 4)
@group(0) @binding(1) var<uniform>             now: Now;            // n_tokens
@group(0) @binding(2) var<storage, read_write> y: array<vec4f>;     // ((n_tokens + 1) / 2, X_STRIDE / 32, 9)

struct Scale {
  d: f32, by: f32,  // x = d q, q = by x
}

fn scale_of(at: u32) -> Scale {
  var most = vec4f();
  var all = vec4f();
  for (var i = 0u; i < 8u; i++) {
    let size = abs(x[at + i]);
    most = max(most, size);
    all += size;
  }
  let m = max(max(most.x, most.y), max(most.z, most.w));
  let sum = (all.x + all.y) + (all.z + all.w);
  // max() may pass over NaN; a sum does not
  let d = select(sum, m / 127.0, sum <= 3.4e38);
  return Scale(d, select(0.0, 127.0 / m, m > 1e-30));
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) workgroup: vec3u, @builtin(num_workgroups) count: vec3u,
        @builtin(local_invocation_index) index: u32) {
  let block = flat_workgroup(workgroup, count) * WG + index;
  let t = workgroup.z * {T}u;
  if (t >= now.n_tokens || block >= X_STRIDE / 32u) {
    return;
  }
  let a = t * (X_STRIDE / 4u) + 8u * block;
  let b = min(t + 1u, now.n_tokens - 1u) * (X_STRIDE / 4u) + 8u * block;
  let to = (workgroup.z * (X_STRIDE / 32u) + block) * 9u;
  let scale_a = scale_of(a);
  let scale_b = scale_of(b);
  var sum_a = vec4f();
  var sum_b = vec4f();
  for (var i = 0u; i < 8u; i++) {
    let q_a = round(x[a + i] * scale_a.by);
    let q_b = round(x[b + i] * scale_b.by);
    sum_a += q_a;
    sum_b += q_b;
    y[to + i] = q_a + 65536.0 * q_b;
  }
  y[to + 8u] = vec4f(scale_a.d, scale_b.d, dot(sum_a, vec4f(1.0)), dot(sum_b, vec4f(1.0)));
}
