// last_row: copy the row of the last token, so that a prompt pays for the logits of that token alone.
//   y[0,i] = x[n_tokens - 1, i]
// shapes  x (n_tokens, STRIDE)   y (1, STRIDE)      all f32
// grid    x, y: ceil(STRIDE / WG) workgroups, folded
// uses    lib/state.wgsl lib/grid.wgsl
// error   exact
// source  a copy
override STRIDE: u32;          // elements of a row
override WG: u32 = 64u;        // power of two
@group(0) @binding(0) var<storage, read>       x: array<f32>;           // (n_tokens, STRIDE)
@group(0) @binding(1) var<storage, read>       state: State;            // n_tokens
@group(0) @binding(2) var<storage, read_write> y: array<f32>;           // (1, STRIDE)

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) workgroup: vec3u, @builtin(num_workgroups) count: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let i = flat_workgroup(workgroup, count) * WG + lane;
  if (i < STRIDE && state.n_tokens > 0u) {
    y[i] = x[(state.n_tokens - 1u) * STRIDE + i];
  }
}
