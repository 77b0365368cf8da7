// share_test: do the invocations of a quad really share, and in the order that load/quad.wgsl takes for granted?
// It loads through the same function as the kernels: `x` holds different numbers, so every swap shows.
//   y[i] = the 32 activations of block i / 4 as invocation i gets them, in the order of lib/activations.wgsl
// shapes  x (WG / 4, 32)   y (WG, 32)      f32
// grid    one workgroup of WG invocations
// uses    load/<S>.wgsl lib/plain.wgsl
// error   exact
// source  quadSwapX, quadSwapY, quadSwapDiagonal: https://www.w3.org/TR/WGSL/#quad-builtin-functions
override WG: u32 = 64u;        // power of two
@group(0) @binding(0) var<storage, read>       x: array<vec4f>;         // (WG / 4, 8)
@group(0) @binding(1) var<storage, read_write> y: array<vec4f>;         // (WG, 8)

@compute @workgroup_size(WG)
fn main(@builtin(local_invocation_index) index: u32) {
  let z = activations(index / 4u * 8u, index % 4u);
  let at = 8u * index;
  y[at] = z.a0;
  y[at + 1u] = z.b0;
  y[at + 2u] = z.a1;
  y[at + 3u] = z.b1;
  y[at + 4u] = z.a2;
  y[at + 5u] = z.b2;
  y[at + 6u] = z.a3;
  y[at + 7u] = z.b3;
}
