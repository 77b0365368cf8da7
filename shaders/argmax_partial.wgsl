// argmax_partial: the largest logit of each stretch of the vocabulary, one stretch per workgroup.
//   y[g] = (key of the largest of x[g * SPAN … (g + 1) * SPAN - 1], its index)
// shapes  x (N_VOCAB) f32   y (N_PART, 2) u32
// grid    x: N_PART = ceil(N_VOCAB / SPAN) workgroups
// uses    lib/reduce_best.wgsl
// error   exact; lowest index on ties, NaN never wins
// source  ggml_argmax
override N_VOCAB: u32;         // logits
override SPAN: u32;            // logits per workgroup
override WG: u32 = 64u;        // power of two
@group(0) @binding(0) var<storage, read>       x: array<f32>;           // (N_VOCAB)
@group(0) @binding(1) var<storage, read_write> y: array<vec2u>;         // (N_PART)

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) workgroup: vec3u, @builtin(local_invocation_index) lane: u32) {
  let start = workgroup.x * SPAN;
  var best = NONE;
  for (var i = start + lane; i < min(start + SPAN, N_VOCAB); i += WG) {
    let key = float_key(x[i]);
    if (key > best.key) {  // i grows: the first of equal keys stays
      best = Best(key, i);
    }
  }
  best = reduce_best(best, lane);
  if (lane == 0u) {
    y[workgroup.x] = vec2u(best.key, best.index);
  }
}
