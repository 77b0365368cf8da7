// reduce: sum and maximum over a workgroup as a tree in workgroup memory.
// The order of additions depends on WG alone, so a result has the same bits on every run and every adapter
// whose f32 addition is IEEE. All WG invocations must call it together; all get the result.
var<workgroup> scratch: array<f32, WG>;

fn reduce_sum(value: f32, lane: u32) -> f32 {
  scratch[lane] = value;
  workgroupBarrier();
  for (var width = WG / 2u; width > 0u; width /= 2u) {
    if (lane < width) {
      scratch[lane] += scratch[lane + width];
    }
    workgroupBarrier();
  }
  let total = scratch[0];
  workgroupBarrier();  // nobody may start the next reduction before all have read this one
  return total;
}

fn reduce_max(value: f32, lane: u32) -> f32 {
  scratch[lane] = value;
  workgroupBarrier();
  for (var width = WG / 2u; width > 0u; width /= 2u) {
    if (lane < width) {
      scratch[lane] = max(scratch[lane], scratch[lane + width]);
    }
    workgroupBarrier();
  }
  let largest = scratch[0];
  workgroupBarrier();
  return largest;
}
