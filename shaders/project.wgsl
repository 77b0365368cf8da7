// project: the projection that ends a block, the residual sum, and what the next norm needs.
//   x[t] += SCALE * W y[t]       h[t] = x[t] * norm       partials[t]: the squares of x[t], summed in parts
// shapes  q, s: W (N_ROWS, N_IN) in tiles   y (n_tokens, X_STRIDE)   norm (N_ROWS)   x, h (n_tokens, STRIDE)
//         partials (n_tokens, N_PARTIALS): one for each PART_PAIRS pairs of rows, shared sums as one   all f32
// grid    x, y: ceil(N_ROWS / (2 P WG)) workgroups, folded; z: ceil(n_tokens / T)
// tile    P pairs of rows x T tokens per invocation; no result depends on how many
// uses    lib/now.wgsl rows/<R>.wgsl load/<S>.wgsl quant/<Q>.wgsl
// error   1.2e-7 * (sqrt(N_IN) + 8) * sum_i spread_i |y_i|, + 6e-8 |x|; h relative 6e-8 more; partials 1e-6
// source  ggml_mul_mat, ggml_add; Zhang & Sennrich 2019, arXiv:1910.07467
override STRIDE: u32;          // elements from one row of x and h to the next
override N_PARTIALS: u32;      // partial sums of squares of a row
override SCALE: f32 = 1.0;
override PART_PAIRS: u32;      // pairs of rows in one of them; P is a multiple
override WG: u32 = 64u;        // power of two
@group(0) @binding(2) var<storage, read>       x: array<vec4f>;         // y (n_tokens, X_STRIDE / 4)
@group(0) @binding(3) var<storage, read>       norm: array<f32>;        // (N_ROWS) of the whole matrix
@group(0) @binding(4) var<uniform>             now: Now;                // n_tokens
@group(0) @binding(5) var<storage, read_write> h: array<f32>;           // (n_tokens, STRIDE)
@group(0) @binding(6) var<storage, read_write> partials: array<f32>;    // (n_tokens, N_PARTIALS)
@group(0) @binding(7) var<storage, read_write> residual: array<f32>;    // x (n_tokens, STRIDE)

// The square of the element that `value` was added to, or zero past the last row.
fn add(t: u32, row: u32, value: f32) -> f32 {
  var square = 0.0;
  if (row < ROW0 + N_ROWS) {
    let sum = residual[t * STRIDE + row] + SCALE * value;
    residual[t * STRIDE + row] = sum;
    h[t * STRIDE + row] = sum * norm[row];
    square = sum * sum;
  }
  return square;
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
  if (!work.live) {  // no invocation of its quad is
    return;
  }
  // One loop over the pairs of all tokens, with no other inside: compilers that keep what is alive in loops in few
  // registers (SwiftShader) make the one in `products` an eighth slower otherwise.
  let n_pairs = {P}u * min({T}u, now.n_tokens - t0);
  var squares = 0.0;
  for (var i = 0u; i < n_pairs; i++) {
    let t = t0 + i / {P}u;
    let p = i % {P}u;
    let row = work.row + 8u * p;
    squares += add(t, row, sums[2u * i]) + add(t, row + 1u, sums[2u * i + 1u]);
    if ((p + 1u) % PART_PAIRS == 0u) {
      let part = work.part * ({P}u / PART_PAIRS) + p / PART_PAIRS;
      let place = part * (4u / SHARERS) + work.lane / SHARERS;
      let shared_squares = share_sum(squares);
      if (work.lane % SHARERS == 0u && place < N_PARTIALS) {
        partials[t * N_PARTIALS + place] = shared_squares;
      }
      squares = 0.0;
    }
  }
}
