// activate: the activation of a feed-forward block without a gate.
//   y[t,i] = activated(x[t,i])
// shapes  x, y (n_tokens, STRIDE)      all f32
// grid    x, y: ceil(STRIDE / WG) workgroups, folded; z: one per token
// uses    lib/state.wgsl lib/grid.wgsl lib/activation.wgsl
// error   lib/activation.wgsl's
// source  ggml_gelu
override STRIDE: u32;          // elements of a row
override WG: u32 = 64u;        // power of two
@group(0) @binding(0) var<storage, read>       x: array<f32>;           // (n_tokens, STRIDE)
@group(0) @binding(1) var<storage, read>       state: State;            // n_tokens
@group(0) @binding(2) var<storage, read_write> y: array<f32>;           // (n_tokens, STRIDE)

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) workgroup: vec3u, @builtin(num_workgroups) count: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let i = flat_workgroup(workgroup, count) * WG + lane;
  let t = workgroup.z;
  if (i < STRIDE && t < state.n_tokens) {
    y[t * STRIDE + i] = activated(x[t * STRIDE + i]);
  }
}
