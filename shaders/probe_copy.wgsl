// probe_copy: how many bytes a second can this adapter move? A copy, for measuring alone.
//   y[i] = x[i]
// shapes  x, y (n, 4)      f32
// grid    x, y: ceil(n / (EACH WG)) workgroups, folded
// uses    lib/grid.wgsl
// error   exact
// source  McCalpin 1995, "Memory Bandwidth and Machine Balance", STREAM's Copy
override EACH: u32 = 1u;       // vectors that an invocation copies; a workgroup's lie side by side
override WG: u32 = 64u;        // power of two
@group(0) @binding(0) var<storage, read>       x: array<vec4f>;         // (n)
@group(0) @binding(1) var<storage, read_write> y: array<vec4f>;         // (n)

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) workgroup: vec3u, @builtin(num_workgroups) count: vec3u,
        @builtin(local_invocation_index) index: u32) {
  let first = flat_workgroup(workgroup, count) * EACH * WG + index;
  for (var k = 0u; k < EACH; k++) {
    let i = first + k * WG;
    if (i < arrayLength(&x)) {
      y[i] = x[i];
    }
  }
}
