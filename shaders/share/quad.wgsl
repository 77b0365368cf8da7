// quad: four neighbouring invocations share a sum through subgroup operations.
// Needs subgroups whose lanes follow local_invocation_index in fours, which a start-up test confirms. What calls
// these functions keeps a quad together, though not always a whole subgroup.
enable subgroups;
diagnostic(off, subgroup_uniformity);

const SHARERS = 4u;  // invocations that hold one shared sum

fn share_sum(value: f32) -> f32 {
  let pair = value + quadSwapX(value);
  return pair + quadSwapY(pair);
}

fn share_sum4(value: vec4f) -> vec4f {
  let pair = value + quadSwapX(value);
  return pair + quadSwapY(pair);
}
