// accept: choose the token after each token of a pass, and move the state on past the guesses that are right.
//   next[t] = index of the largest key of row t, lowest index on ties
//   right = how many guesses tokens[1], tokens[2] … are next[0], next[1] …, up to the first that is not
//   next = next[right]; n_past += right + 1; tokens = [next, right << 28 | next % 2^28]
// shapes  x (T, N_PART, 2) u32   state: next, fed, tokens[0], tokens[1], n_past, n_tokens are written
// grid    one workgroup
// tile    T tokens in a pass at most, up to 8
// uses    lib/state.wgsl lib/reduce_best.wgsl
// error   exact; next is 0xffffffff when every logit of its row was NaN
// source  Leviathan et al. 2023, arXiv:2211.17192, section 2.3, for greedy decoding
override N_PART: u32;          // partial maxima of a row
override WG: u32 = 64u;        // power of two
@group(0) @binding(0) var<storage, read>       x: array<vec2u>;         // (T, N_PART)
@group(0) @binding(1) var<storage, read_write> state: State;            // next, fed, tokens, n_past, n_tokens

@compute @workgroup_size(WG)
fn main(@builtin(local_invocation_index) lane: u32) {
  var next = NONE.index;
  var right = 0u;
  var on = true;
  for (var t = 0u; t < {T}u; t++) {
    var best = NONE;
    for (var i = lane; i < N_PART; i += WG) {
      let part = x[t * N_PART + i];
      best = better(best, Best(part.x, part.y));
    }
    best = reduce_best(best, lane);
    if (lane == 0u && on) {
      next = best.index;
      on = t + 1u < state.n_tokens && next == state.tokens[t + 1u];
      right += u32(on);
    }
  }
  if (lane == 0u) {
    state.fed = state.tokens[right];
    state.n_past += right + 1u;
    state.n_tokens = 1u;
    state.next = next;
    state.tokens[0] = next;
    state.tokens[1] = (right << 28u) | (next & 0x0fffffffu);
  }
}
