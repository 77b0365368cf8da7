// add_norm: the end of a block and the start of the next: what is added is normed first, the sum after, each if asked.
//   x[t] += SCALE * (post(o[t]) or o[t])      h[t] = norm(x[t])
//   post: v / sqrt(mean v^2 + EPS) * post_gain      norm: the same with gain, or with MEAN (v - mean) / deviation * gain
//   (+ b)
// shapes  o, x, h (n_tokens, STRIDE)   post_gain, gain, b (N_EMBD)   all f32; h is written with NEXT only
// grid    z: one workgroup of WG invocations per token
// uses    lib/now.wgsl lib/reduce.wgsl
// error   x: norm.wgsl's + 6e-8 |x|; h: norm.wgsl's of it
// source  norm.wgsl, add.wgsl
override N_EMBD: u32;          // row length, elements
override STRIDE: u32;          // elements from one row to the next
override EPS: f32;
override SCALE: f32 = 1.0;
override POST: bool = false;
override NEXT: bool = true;
override MEAN: bool = false;
override BIAS: bool = false;
override WG: u32 = 64u;        // power of two
@group(0) @binding(0) var<storage, read>       o: array<f32>;           // (n_tokens, STRIDE)
@group(0) @binding(1) var<storage, read>       post_gain: array<f32>;   // (N_EMBD)
@group(0) @binding(2) var<storage, read>       gain: array<f32>;        // (N_EMBD)
@group(0) @binding(3) var<storage, read>       b: array<f32>;           // (N_EMBD)
@group(0) @binding(4) var<uniform>             now: Now;                // n_tokens
@group(0) @binding(5) var<storage, read_write> h: array<f32>;           // (n_tokens, STRIDE)
@group(0) @binding(6) var<storage, read_write> x: array<f32>;           // (n_tokens, STRIDE)

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) workgroup: vec3u, @builtin(local_invocation_index) lane: u32) {
  let t = workgroup.z;
  let row = t * STRIDE;
  let n = select(0u, N_EMBD, t < now.n_tokens);  // past the last token nothing is done, but for the barriers
  var scale = SCALE;
  if (POST) {
    var squares = 0.0;
    for (var i = lane; i < n; i += WG) {
      squares += o[row + i] * o[row + i];
    }
    scale *= inverseSqrt(reduce_sum(squares, lane) / f32(N_EMBD) + EPS);
  }
  var sum = 0.0;
  var squares = 0.0;
  for (var i = lane; i < n; i += WG) {
    var v = o[row + i] * scale;
    if (POST) {
      v *= post_gain[i];
    }
    v += x[row + i];
    x[row + i] = v;
    sum += v;
    squares += v * v;
  }
  if (!NEXT) {
    return;
  }
  var mean = 0.0;
  if (MEAN) {
    mean = reduce_sum(sum, lane) / f32(N_EMBD);
    squares = 0.0;
    for (var i = lane; i < n; i += WG) {  // each reads what it wrote itself
      squares += (x[row + i] - mean) * (x[row + i] - mean);
    }
  }
  let unit = inverseSqrt(reduce_sum(squares, lane) / f32(N_EMBD) + EPS);
  for (var i = lane; i < n; i += WG) {
    var v = (x[row + i] - mean) * unit * gain[i];
    if (BIAS) {
      v += b[i];
    }
    h[row + i] = v;
  }
}
