// embed: look up the rows of the tokens of this pass, and prepare the first norm.
//   x[t] = SCALE * w[token[t]], or with POSITIONS x[t] += w[n_past + t]
//   h[t] = x[t] * norm     partials[t]: the squares of x[t], summed in parts
// shapes  q, s: W (N_ROWS, N_EMBD) in tiles   norm (N_EMBD)   x, h (n_tokens, STRIDE)   f32
//         partials (n_tokens, N_PARTIALS) f32, N_PARTIALS / (STRIDE / 32) for each block of 32
// grid    x, y: ceil(STRIDE / 32 / WG) workgroups, folded; z: one per token
// uses    lib/state.wgsl lib/grid.wgsl lib/tiles.wgsl quant/<Q>.wgsl
// error   x: relative 4 * 2^-23: d * q + m rounds twice, SCALE once, a sum with POSITIONS once; h 2 * 2^-23 more;
//         partials 44 * 2^-23
// source  ggml_get_rows
override N_EMBD: u32;          // row length, elements
override N_ROWS: u32;          // rows in this slab
override ROW0: u32 = 0u;       // first row of this slab in the whole matrix, a multiple of 32
override STRIDE: u32;          // elements from one row of x and h to the next, a multiple of 32
override N_PARTIALS: u32;      // partial sums of a row, a multiple of STRIDE / 32
override SCALE: f32 = 1.0;
override POSITIONS: bool = false;  // W has a row for each position, and is added
override WG: u32 = 64u;        // power of two
@group(0) @binding(2) var<storage, read>       norm: array<f32>;        // (N_EMBD)
@group(0) @binding(3) var<storage, read>       state: State;            // tokens
@group(0) @binding(4) var<storage, read_write> h: array<f32>;           // (n_tokens, STRIDE)
@group(0) @binding(5) var<storage, read_write> partials: array<f32>;    // (n_tokens, N_PARTIALS)
@group(0) @binding(6) var<storage, read_write> x: array<f32>;           // (n_tokens, STRIDE)

fn put(at: u32, i: u32, v: vec4f) -> f32 {
  var squares = 0.0;
  // repeat e in 0..4
  if (i + {e}u < N_EMBD) {
    var v{e} = SCALE * v[{e}];
    if (POSITIONS) {
      v{e} += x[at + i + {e}u];
    }
    x[at + i + {e}u] = v{e};
    h[at + i + {e}u] = v{e} * norm[i + {e}u];
    squares += v{e} * v{e};
  }
  // end
  return squares;
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) workgroup: vec3u, @builtin(num_workgroups) count: vec3u,
        @builtin(local_invocation_index) index: u32) {
  let block = flat_workgroup(workgroup, count) * WG + index;
  let t = workgroup.z;
  if (block >= STRIDE / 32u || t >= state.n_tokens) {
    return;
  }
  let row = select(state.tokens[t], state.n_past + t, POSITIONS) - ROW0;  // wraps past N_ROWS below ROW0
  if (row >= N_ROWS) {
    return;
  }
  let cell = cell_of(row, block, STRIDE / 32u);
  let w = words(cell);
  var squares = 0.0;
  // repeat i in 0..4
  let v{i} = values(a{i}(w), b{i}(w), w.dm);
  let k{i} = 32u * block + 4u * ({i}u ^ (cell & 3u));
  squares += put(t * STRIDE, k{i}, v{i}.a) + put(t * STRIDE, k{i} + 16u, v{i}.b);
  // end
  let n = N_PARTIALS / (STRIDE / 32u);
  for (var i = 0u; i < n; i++) {
    partials[t * N_PARTIALS + block * n + i] = select(0.0, squares, i == 0u);
  }
}
