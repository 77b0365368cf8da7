"""Writes a GGUF file again with its matrices in another tensor type, by the `gguf` package.

    .venv/bin/python tests/requantise.py IN.gguf OUT.gguf Q4_0

Vectors stay F32; everything else is decoded and encoded again; metadata is copied.
"""

import sys
from pathlib import Path

import gguf
import numpy as np


def requantise(source: Path, target: Path, quant: str) -> None:
    """`quant`: a type that the package can write, such as Q4_0, Q8_0 or F16."""
    reader = gguf.GGUFReader(source)
    kind = gguf.GGMLQuantizationType[quant]
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    for field in reader.fields.values():
        if field.name == "general.architecture" or field.name.startswith("GGUF."):
            continue
        value_type = field.types[0]
        item_type = field.types[-1] if value_type == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), value_type, item_type)
    for tensor in reader.tensors:
        data = tensor.data
        if len(tensor.shape) > 1:
            with np.errstate(all="ignore"):  # the package divides by zero in zero blocks, on purpose
                data = gguf.quants.quantize(gguf.quants.dequantize(data, tensor.tensor_type), kind)
            writer.add_tensor(tensor.name, data, raw_dtype=kind)
        else:
            writer.add_tensor(tensor.name, data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    requantise(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
