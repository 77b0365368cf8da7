// bias: add the same vector to every row, in place.
//   x[t,i] += b[FIRST + i]
// shapes  b (N_BIAS)   x (n_tokens, STRIDE)      all f32
// grid    x, y: ceil(N / WG) workgroups, folded; z: one per token
// uses    lib/state.wgsl lib/grid.wgsl
// error   exact rounding of one addition
// source  ggml_add
override N: u32;               // elements that have a bias
override FIRST: u32 = 0u;      // where theirs starts in b
override STRIDE: u32;          // elements from one row to the next
override WG: u32 = 64u;        // power of two
@group(0) @binding(0) var<storage, read>       b: array<f32>;           // (N_BIAS)
@group(0) @binding(1) var<storage, read>       state: State;            // n_tokens
@group(0) @binding(2) var<storage, read_write> x: array<f32>;           // (n_tokens, STRIDE)

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) workgroup: vec3u, @builtin(num_workgroups) count: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let i = flat_workgroup(workgroup, count) * WG + lane;
  let t = workgroup.z;
  if (i < N && t < state.n_tokens) {
    x[t * STRIDE + i] += b[FIRST + i];
  }
}
