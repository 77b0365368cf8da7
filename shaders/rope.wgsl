// rope: rotate pairs of elements of each head by angles that grow with the position, in place.
//   (a, b) -> (a cos - b sin, a sin + b cos)      pairs are neighbours, or with NEOX elements j and j + N_ROT / 2
// The table of cos and sin is computed on the CPU in double precision and rounded once (guest/rope.py).
// shapes  angles (n_ctx, N_ROT / 2) (cos, sin)   x (n_tokens, STRIDE) = (n_tokens, N_HEAD, N_EMBD_HEAD)    all f32
// grid    x, y: ceil(N_HEAD * N_ROT / 2 / WG) workgroups, folded; z: one per token
// uses    lib/state.wgsl lib/grid.wgsl
// error   3e-7 * (|a| + |b|): two products and a sum
// source  Su et al. 2021, arXiv:2104.09864; neighbours = ggml's GGML_ROPE_TYPE_NORMAL, NEOX = GGML_ROPE_TYPE_NEOX
override N_HEAD: u32;          // heads in a row
override N_EMBD_HEAD: u32;     // elements of a head
override N_ROT: u32;           // of which the first so many are rotated
override STRIDE: u32;          // elements from one row to the next
override NEOX: bool = false;
override WG: u32 = 64u;        // power of two
@group(0) @binding(0) var<storage, read>       angles: array<vec2f>;    // (n_ctx, N_ROT / 2)
@group(0) @binding(1) var<storage, read>       state: State;            // n_past, n_tokens
@group(0) @binding(2) var<storage, read_write> x: array<f32>;           // (n_tokens, STRIDE)

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) workgroup: vec3u, @builtin(num_workgroups) count: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let pair = flat_workgroup(workgroup, count) * WG + lane;
  let t = workgroup.z;
  if (pair >= N_HEAD * N_ROT / 2u || t >= state.n_tokens) {
    return;
  }
  let j = pair % (N_ROT / 2u);
  let turn = angles[(state.n_past + t) * (N_ROT / 2u) + j];
  let a = t * STRIDE + pair / (N_ROT / 2u) * N_EMBD_HEAD + select(2u * j, j, NEOX);
  let b = a + select(1u, N_ROT / 2u, NEOX);
  let v = vec2f(x[a], x[b]);
  x[a] = v.x * turn.x - v.y * turn.y;
  x[b] = v.x * turn.y + v.y * turn.x;
}
