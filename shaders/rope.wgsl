// rope: rotate adjacent pairs of each head by angles that grow with the position, in place.
//   (a, b) -> (a cos - b sin, a sin + b cos)      angle of pair j at position p: p * base^(-2j / N_ROT)
// The table of cos and sin is computed on the CPU in double precision and rounded once.
// shapes  angles (n_ctx, N_ROT / 2) (cos, sin)   x (n_tokens, STRIDE) = (n_tokens, N_HEAD, N_ROT)    all f32
// grid    x, y: ceil(N_HEAD * N_ROT / 2 / WG) workgroups, folded; z: one per token
// uses    lib/state.wgsl lib/grid.wgsl
// error   3e-7 * (|a| + |b|): two products and a sum
// source  Su et al. 2021, arXiv:2104.09864; adjacent pairs = ggml's GGML_ROPE_TYPE_NORMAL
override N_HEAD: u32;          // heads in a row
override N_ROT: u32;           // elements of a head, all rotated
override STRIDE: u32;          // elements from one row to the next
override WG: u32 = 64u;        // power of two
@group(0) @binding(0) var<storage, read>       angles: array<vec2f>;    // (n_ctx, N_ROT / 2)
@group(0) @binding(1) var<storage, read>       state: State;            // n_past, n_tokens
@group(0) @binding(2) var<storage, read_write> x: array<vec2f>;         // (n_tokens, STRIDE / 2)

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) workgroup: vec3u, @builtin(num_workgroups) count: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let pair = flat_workgroup(workgroup, count) * WG + lane;
  let t = workgroup.z;
  if (pair >= N_HEAD * N_ROT / 2u || t >= state.n_tokens) {
    return;
  }
  let turn = angles[(state.n_past + t) * (N_ROT / 2u) + pair % (N_ROT / 2u)];
  let at = t * (STRIDE / 2u) + pair;
  let v = x[at];
  x[at] = vec2f(v.x * turn.x - v.y * turn.y, v.x * turn.y + v.y * turn.x);
}
