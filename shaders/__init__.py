"""WGSL sources, one operation a file; `quant/` and `lib/` hold the parts they share."""
