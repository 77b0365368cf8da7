// gated: the gated activation of the feed-forward block.
//   y[t,i] = activated(gate[t,i]) * up[t,i], or with CLAMPED, g = min(gate, 7) and u = up within -7 ... 7,
//   g / (1 + exp(-1.702 g)) * (u + 1)
// shapes  gate, up, y (n_tokens, STRIDE)      all f32
// grid    x, y: ceil(STRIDE / WG) workgroups, folded; z: one per token
// uses    lib/state.wgsl lib/grid.wgsl lib/activation.wgsl
// error   lib/activation.wgsl's, + 6e-7; CLAMPED: relative (4 + 3 |1.702 g|) 1.2e-7 + 6e-7, + 2e-35 |g (u + 1)|
// source  Shazeer 2020, arXiv:2002.05202; CLAMPED: OpenAI 2025, arXiv:2508.10925
override STRIDE: u32;          // elements of a row
override CLAMPED: bool = false;
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
  let at = t * STRIDE + i;
  if (CLAMPED) {
    let g = min(gate[at], 7.0);
    y[at] = g / (1.0 + exp(min(-1.702 * g, 80.0))) * (clamp(up[at], -7.0, 7.0) + 1.0);
  } else {
    y[at] = activated(gate[at]) * up[at];
  }
}
