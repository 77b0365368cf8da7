// share_test: do the invocations of a quad share, and in the order that the kernels take for granted?
// It loads through the same function as they do: `x` holds different numbers, so that every swap shows.
//   y[i] = the 32 activations of row i / 4 of x as invocation i gets them (lib/activations.wgsl)
// shapes  x (n / 4, 32)   y (n, 32)      f32
// grid    x, y: n / WG workgroups, folded
// uses    lib/grid.wgsl load/<S>.wgsl lib/plain.wgsl
// error   exact
// source  https://www.w3.org/TR/WGSL/#quad-builtin-functions
override WG: u32 = 64u;        // power of two
@group(0) @binding(0) var<storage, read>       x: array<vec4f>;         // (n / 4, 8)
@group(0) @binding(1) var<storage, read_write> y: array<vec4f>;         // (n, 8)

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) workgroup: vec3u, @builtin(num_workgroups) count: vec3u,
        @builtin(local_invocation_index) index: u32) {
  let i = flat_workgroup(workgroup, count) * WG + index;
  let z = activations(i / 4u * 8u, i % 4u);
  y[8u * i] = z.a0;
  y[8u * i + 1u] = z.b0;
  y[8u * i + 2u] = z.a1;
  y[8u * i + 3u] = z.b1;
  y[8u * i + 4u] = z.a2;
  y[8u * i + 5u] = z.b2;
  y[8u * i + 6u] = z.a3;
  y[8u * i + 7u] = z.b3;
}
