// probe_fma: how many multiplications and additions a second? Chains that wait for nothing but themselves.
//   y[i] = eight chains a_c = m a_c + b, from a_c = i + c on, each of 16 rounds links
// shapes  x: m, b, rounds, unused   y (n, 8)      f32
// grid    x, y: ceil(n / WG) workgroups, folded
// uses    lib/grid.wgsl
// error   1.2e-7 * links * max |a|: two roundings a link, or one where the compiler fuses them
// source  the roofline model: Williams et al. 2009, doi:10.1145/1498765.1498785
override WG: u32 = 64u;        // power of two
@group(0) @binding(0) var<storage, read>       x: vec4f;                // (4)
@group(0) @binding(1) var<storage, read_write> y: array<vec4f>;         // (n, 2)

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) workgroup: vec3u, @builtin(num_workgroups) count: vec3u,
        @builtin(local_invocation_index) index: u32) {
  let i = flat_workgroup(workgroup, count) * WG + index;
  if (2u * i >= arrayLength(&y)) {
    return;
  }
  let m = x.x;
  let b = x.y;
  var p = f32(i) + vec4f(0.0, 1.0, 2.0, 3.0);
  var q = f32(i) + vec4f(4.0, 5.0, 6.0, 7.0);
  for (var round = 0u; round < u32(x.z); round++) {
    // repeat link in 0..16
    p = p * m + b;  // {link}
    q = q * m + b;
    // end
  }
  y[2u * i] = p;
  y[2u * i + 1u] = q;
}
