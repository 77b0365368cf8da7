// experts: the product of each token with the matrices of the experts that it goes to.
//   y[t,s] = W[e] x[t] / rms(x[t]) + b[e]      e = chosen[t,s]; with OWN x[t,s] in the place of x[t]
// shapes  q, s: W (experts of this buffer, N_ROWS, N_IN) in tiles, N_ROWS a multiple of 32
//         x (n_tokens, X_STRIDE) or with OWN (n_tokens, N_USED, X_STRIDE), zero from N_IN on
//         partials (n_tokens, N_PARTIALS)   b (N_EXPERT, N_ROWS), read with BIAS only   chosen (n_tokens, N_USED) u32
//         y (n_tokens, N_USED, Y_STRIDE)   all f32
// grid    x, y: ceil(N_ROWS / (2 P WG)) workgroups, folded; z: n_tokens * N_USED
// tile    P pairs of rows per invocation, T = 1; P divides N_ROWS / 8
// uses    lib/now.wgsl rows/<R>.wgsl lib/rms.wgsl load/<S>.wgsl quant/<Q>.wgsl
// error   1.2e-7 * (sqrt(N_IN) + 12) * rms scale * sum_i spread_i |x_i|, + 6e-8 |y|
// source  ggml_mul_mat_id
override N_USED: u32;          // experts of a token
override EXPERT0: u32 = 0u;    // the first one in this buffer
override N_HERE: u32;          // how many are in it
override OWN: bool = false;
override N_EMBD: u32 = 0u;     // row length of what was normed, elements
override N_PARTIALS: u32 = 0u; // partial sums of squares of a row
override EPS: f32 = 0.0;
override BIAS: bool = false;
override Y_STRIDE: u32;        // elements from one row of y to the next
override WG: u32 = 64u;        // power of two
@group(0) @binding(2) var<storage, read>       x: array<vec4f>;         // (rows, X_STRIDE / 4)
@group(0) @binding(3) var<storage, read>       partials: array<f32>;    // (n_tokens, N_PARTIALS)
@group(0) @binding(4) var<storage, read>       b: array<f32>;           // (N_EXPERT, N_ROWS)
@group(0) @binding(5) var<storage, read>       chosen: array<u32>;      // (n_tokens, N_USED)
@group(0) @binding(6) var<uniform>             now: Now;                // n_tokens
@group(0) @binding(7) var<storage, read_write> y: array<f32>;           // (n_tokens, N_USED, Y_STRIDE)

fn store(place: u32, expert: u32, row: u32, sum: f32) {
  if (row < N_ROWS) {
    var value = sum;
    if (BIAS) {
      value += b[expert * N_ROWS + row];
    }
    y[place * Y_STRIDE + row] = value;
  }
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) workgroup: vec3u, @builtin(num_workgroups) count: vec3u,
        @builtin(local_invocation_index) index: u32) {
  let place = workgroup.z;
  let t = place / N_USED;
  if (t >= now.n_tokens) {
    return;
  }
  let expert = chosen[place];
  if (expert - EXPERT0 >= N_HERE) {  // wraps below EXPERT0
    return;
  }
  var work = work_of(flat_workgroup(workgroup, count) * WG + index);
  work.unit += (expert - EXPERT0) * (n_tiles() / TILES * PARTS);
  let row = select(t, place, OWN);
  var sums = products(work, row, row + 1u);
  let scale = rms_scale(t, work.lane);
  for (var p = 0u; p < {P}u && work.live; p++) {
    store(place, expert, work.row + 8u * p, sums[2u * p] * scale);
    store(place, expert, work.row + 8u * p + 1u, sums[2u * p + 1u] * scale);
  }
}
