// logits: the last norm and the output projection of the pass's last token, with a maximum for every invocation.
//   y[row] = W h / rms(x)         best: (key, index) of the largest of an invocation's rows (lib/best.wgsl)
// shapes  q, s: W (N_ROWS, N_EMBD) in tiles   h (n_tokens, X_STRIDE)   partials (n_tokens, N_PARTIALS)
//         y (n_vocab) f32   best (n_parts) pairs of u32
// grid    x, y: ceil(N_ROWS / (2 P WG)) workgroups, folded
// tile    P pairs of rows per invocation; T is 1
// uses    lib/now.wgsl rows/<R>.wgsl lib/rms.wgsl lib/best.wgsl load/<S>.wgsl quant/<Q>.wgsl
// error   1.2e-7 * (sqrt(N_EMBD) + 12) * rms scale * sum_i spread_i |h_i|
// source  ggml_mul_mat, ggml_argmax
override N_EMBD: u32;          // row length, elements
override N_PARTIALS: u32;      // partial sums of squares of a row
override EPS: f32;
override WG: u32 = 64u;        // power of two
@group(0) @binding(2) var<storage, read>       x: array<vec4f>;         // h (n_tokens, X_STRIDE / 4)
@group(0) @binding(3) var<storage, read>       partials: array<f32>;    // (n_tokens, N_PARTIALS)
@group(0) @binding(4) var<uniform>             now: Now;                // n_tokens
@group(0) @binding(5) var<storage, read_write> best: array<vec2u>;      // one for each invocation
@group(0) @binding(6) var<storage, read_write> y: array<f32>;           // (n_vocab)

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) workgroup: vec3u, @builtin(num_workgroups) count: vec3u,
        @builtin(local_invocation_index) index: u32) {
  let work = work_of(flat_workgroup(workgroup, count) * WG + index);
  let last = max(now.n_tokens, 1u) - 1u;
  let scale = rms_scale(last, work.lane);
  var sums = products(work, last, now.n_tokens);
  if (!work.live) {
    return;
  }
  var winner = NONE;
  for (var i = 0u; i < 2u * {P}u; i++) {
    let row = work.row + 8u * (i / 2u) + i % 2u;
    if (row < ROW0 + N_ROWS) {
      let value = scale * sums[i];
      y[row] = value;
      winner = better(winner, Best(float_key(value), row));
    }
  }
  best[work.part * 4u + work.lane] = vec2u(winner.key, winner.index);
}
