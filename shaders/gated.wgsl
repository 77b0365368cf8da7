// gated: the gated activation of the feed-forward block.
//   y[t,i] = activated(gate[t,i]) * up[t,i]
// shapes  gate, up, y (n_tokens, STRIDE)      all f32
// grid    x, y: ceil(STRIDE / WG) workgroups, folded; z: one per token
// uses    lib/state.wgsl lib/grid.wgsl lib/activation.wgsl
// error   lib/activation.wgsl's, + 6e-7
// source  Shazeer 2020, arXiv:2002.05202
override STRIDE: u32;          // elements of a row
override WG: u32 = 64u;        // power of two
@group(0) @binding(0) var<storage, read>       gate: array<f32>;        // (n_tokens, STRIDE)
@group(0) @binding(1) var<storage, read>       up: array<f32>;          // (n_tokens, STRIDE)
@group(0) @binding(2) var<storage, read>       state: State;            // n_tokens
@group(0) @binding(3) var<storage, read_write> y: array<f32>;           // (n_tokens, STRIDE)

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) workgroup: vec3u, @builtin(num_workgroups) count: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let i = flat_workgroup(workgroup, count) * WG + lane;
  let t = workgroup.z;
  if (i >= STRIDE || t >= state.n_tokens) {
    return;
  }
  y[t * STRIDE + i] = activated(gate[t * STRIDE + i]) * up[t * STRIDE + i];
}
