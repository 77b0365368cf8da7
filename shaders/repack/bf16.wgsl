// BF16 in the file: two bytes an element, moved as F16.
// uses    repack/f16.wgsl
