// logits: the last norm and the output projection of the pass's last T tokens, with maxima for every invocation.
//   y[t,row] = capped(SCALE * W h[t] / rms(x[t]))
//   best[t]: (key, index) of the largest of an invocation's rows (lib/best.wgsl)
// shapes  q, s: W (N_ROWS, N_EMBD) in tiles   h (n_tokens, X_STRIDE)   partials (n_tokens, N_PARTIALS)
//         y (T, Y_STRIDE) f32   best (T, N_PARTS) pairs of u32: of fewer tokens than T the first rows
// grid    x, y: ceil(N_ROWS / (2 P WG)) workgroups, folded
// tile    P pairs of rows x T tokens per invocation
// uses    lib/now.wgsl rows/<R>.wgsl lib/rms.wgsl lib/cap.wgsl lib/best.wgsl load/<S>.wgsl quant/<Q>.wgsl
// error   1.2e-7 * (sqrt(N_EMBD) + 12) * SCALE * rms scale * sum_i spread_i |h_i|, + lib/cap.wgsl's
// source  ggml_mul_mat, ggml_argmax
override N_EMBD: u32;          // row length, elements
override N_PARTIALS: u32;      // partial sums of squares of a row
override EPS: f32;
override SCALE: f32 = 1.0;
override Y_STRIDE: u32 = 0u;   // elements from one row of y to the next
override N_PARTS: u32 = 0u;    // pairs from one row of best to the next
override WG: u32 = 64u;        // power of two
@group(0) @binding(2) var<storage, read>       x: array<vec4f>;         // h (n_tokens, X_STRIDE / 4)
@group(0) @binding(3) var<storage, read>       partials: array<f32>;    // (n_tokens, N_PARTIALS)
@group(0) @binding(4) var<uniform>             now: Now;                // n_tokens
@group(0) @binding(5) var<storage, read_write> best: array<vec2u>;      // (T, N_PARTS), one for each invocation
@group(0) @binding(6) var<storage, read_write> y: array<f32>;           // (T, Y_STRIDE)

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) workgroup: vec3u, @builtin(num_workgroups) count: vec3u,
        @builtin(local_invocation_index) index: u32) {
  let work = work_of(flat_workgroup(workgroup, count) * WG + index);
  let t0 = max(now.n_tokens, {T}u) - {T}u;
  var sums = products(work, t0, now.n_tokens);
  if (!work.live) {  // no invocation of its quad is
    return;
  }
  // repeat t in 0..T
  if (t0 + {t}u < now.n_tokens) {
    let scale = rms_scale(t0 + {t}u, work.lane);
    var winner = NONE;
    for (var i = 0u; i < 2u * {P}u; i++) {
      let row = work.row + 8u * (i / 2u) + i % 2u;
      if (row < ROW0 + N_ROWS) {
        let value = capped(SCALE * scale * sums[2u * {P}u * {t}u + i]);
        y[{t}u * Y_STRIDE + row] = value;
        winner = better(winner, Best(float_key(value), row));
      }
    }
    best[{t}u * N_PARTS + work.part * 4u + work.lane] = vec2u(winner.key, winner.index);
  }
  // end
}
