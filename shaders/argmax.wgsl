// argmax: choose the next token from the partial maxima and move the state on, ready for the next decode step.
//   next = index of the largest key, lowest index on ties; n_past += n_tokens; tokens = [next]
// shapes  x (N_PART, 2) u32   state: next, tokens[0], n_past, n_tokens are written
// grid    one workgroup
// uses    lib/state.wgsl lib/reduce_best.wgsl
// error   exact; next is 0xffffffff when every logit was NaN
// source  ggml_argmax
override N_PART: u32;          // partial maxima
override WG: u32 = 64u;        // power of two
@group(0) @binding(0) var<storage, read>       x: array<vec2u>;         // (N_PART)
@group(0) @binding(1) var<storage, read_write> state: State;            // next, tokens[0], n_past, n_tokens

@compute @workgroup_size(WG)
fn main(@builtin(local_invocation_index) lane: u32) {
  var best = NONE;
  for (var i = lane; i < N_PART; i += WG) {
    best = better(best, Best(x[i].x, x[i].y));
  }
  best = reduce_best(best, lane);
  if (lane == 0u) {
    state.fed = state.tokens[state.n_tokens - 1u];
    state.n_past += state.n_tokens;
    state.n_tokens = 1u;
    state.next = best.index;
    state.tokens[0] = best.index;
  }
}
