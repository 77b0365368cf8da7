// grid: a one-dimensional workgroup count past the adapter's limit per dimension is folded into y.
fn flat_workgroup(workgroup: vec3u, count: vec3u) -> u32 {
  return workgroup.y * count.x + workgroup.x;
}
