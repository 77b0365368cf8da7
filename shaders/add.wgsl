// add: the residual connection, in place.
//   x[t,i] += SCALE * y[t,i]
// shapes  y (n_tokens, STRIDE)   x (n_tokens, STRIDE)      all f32; STRIDE is a multiple of 4
// grid    x, y: ceil(STRIDE / 4 / WG) workgroups, folded; z: one per token
// uses    lib/state.wgsl lib/grid.wgsl
// error   exact rounding of one product, by 1 unless the model says else, and one addition
// source  ggml_add
override STRIDE: u32;          // elements of a row
override SCALE: f32 = 1.0;
override WG: u32 = 64u;        // power of two
@group(0) @binding(0) var<storage, read>       y: array<vec4f>;         // (n_tokens, STRIDE / 4)
@group(0) @binding(1) var<storage, read>       state: State;            // n_tokens
@group(0) @binding(2) var<storage, read_write> x: array<vec4f>;         // (n_tokens, STRIDE / 4)

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) workgroup: vec3u, @builtin(num_workgroups) count: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let i = flat_workgroup(workgroup, count) * WG + lane;
  let t = workgroup.z;
  if (i >= STRIDE / 4u || t >= state.n_tokens) {
    return;
  }
  x[t * (STRIDE / 4u) + i] += SCALE * y[t * (STRIDE / 4u) + i];
}
