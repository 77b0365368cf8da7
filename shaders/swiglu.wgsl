// swiglu: the gated activation of the feed-forward block.
//   y[t,i] = gate[t,i] / (1 + exp(-gate[t,i])) * up[t,i]
// shapes  gate, up, y (n_tokens, STRIDE)      all f32; STRIDE is a multiple of 4
// grid    x, y: ceil(STRIDE / 4 / WG) workgroups, folded; z: one per token
// uses    lib/state.wgsl lib/grid.wgsl
// error   relative (4 + 2 |gate|) * 1.2e-7 + 6e-7: exp has 3 + 2|x| ulp in WGSL, division 2.5
// source  Shazeer 2020, arXiv:2002.05202
override STRIDE: u32;          // elements of a row
override WG: u32 = 64u;        // power of two
@group(0) @binding(0) var<storage, read>       gate: array<vec4f>;      // (n_tokens, STRIDE / 4)
@group(0) @binding(1) var<storage, read>       up: array<vec4f>;        // (n_tokens, STRIDE / 4)
@group(0) @binding(2) var<storage, read>       state: State;            // n_tokens
@group(0) @binding(3) var<storage, read_write> y: array<vec4f>;         // (n_tokens, STRIDE / 4)

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) workgroup: vec3u, @builtin(num_workgroups) count: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let i = flat_workgroup(workgroup, count) * WG + lane;
  let t = workgroup.z;
  if (i >= STRIDE / 4u || t >= state.n_tokens) {
    return;
  }
  let at = t * (STRIDE / 4u) + i;
  // exp(80) is finite; past it the quotient is zero to f32 precision anyway, and inf / inf must not arise
  let e = exp(min(-gate[at], vec4f(80.0)));
  y[at] = gate[at] / (1.0 + e) * up[at];
}
