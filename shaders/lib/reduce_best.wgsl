// reduce_best: the best of a workgroup. All WG invocations must call it together; all get the result.
// uses    lib/best.wgsl
var<workgroup> keys: array<u32, WG>;
var<workgroup> indices: array<u32, WG>;

fn reduce_best(value: Best, lane: u32) -> Best {
  keys[lane] = value.key;
  indices[lane] = value.index;
  workgroupBarrier();
  for (var width = WG / 2u; width > 0u; width /= 2u) {
    if (lane < width) {
      let winner = better(Best(keys[lane], indices[lane]), Best(keys[lane + width], indices[lane + width]));
      keys[lane] = winner.key;
      indices[lane] = winner.index;
    }
    workgroupBarrier();
  }
  let winner = Best(keys[0], indices[0]);
  workgroupBarrier();  // nobody may start the next one before all have read this one
  return winner;
}
