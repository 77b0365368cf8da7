// embed: look up the embedding row of each token and dequantise it.
//   y[t,i] = w[tokens[t], i]        for tokens whose row lies in this slab of the table
// shapes  w (N_ROWS, N_IN) quantised rows ROW0 … ROW0 + N_ROWS - 1   y (n_tokens, Y_STRIDE) f32
// grid    x, y: ceil(ceil(N_IN / 32) / WG) workgroups, folded; z: one per token; an invocation writes 32 elements
// uses    lib/state.wgsl lib/grid.wgsl quant/<Q>.wgsl
// error   1 ulp of the exact product (one rounding of d * q, one of + m)
// source  ggml_get_rows
override N_IN: u32;            // row length, elements
override N_ROWS: u32;          // rows in this slab
override ROW0: u32 = 0u;       // first row of this slab in the whole table
override Y_STRIDE: u32;        // elements from one row of y to the next, a multiple of 32
override WG: u32 = 64u;        // power of two
@group(0) @binding(0) var<storage, read>       w: array<u32>;       // (N_ROWS, N_IN) as in the file
@group(0) @binding(1) var<storage, read>       state: State;        // tokens
@group(0) @binding(2) var<storage, read_write> y: array<vec4f>;     // (n_tokens, Y_STRIDE / 4)

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) workgroup: vec3u, @builtin(num_workgroups) count: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let group = flat_workgroup(workgroup, count) * WG + lane;
  let t = workgroup.z;
  if (group >= (N_IN + 31u) / 32u || t >= state.n_tokens) {
    return;
  }
  let row = state.tokens[t] - ROW0;  // wraps to a huge number for rows of an earlier slab
  if (row >= N_ROWS) {
    return;
  }
  let q = weights(row, group);
  let at = t * (Y_STRIDE / 4u) + group * 8u;
  // repeat i in 0..8
  y[at + {i}u] = q.q{i};
  // end
}
