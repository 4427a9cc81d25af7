"""Is this GGUF file whole, and what does its header say?

Every length in the header is compared with the size of the file before it is used, so that a
damaged file is refused by name and nothing large is read or allocated for it. Layout: GGUF
specification, versions 2 and 3, little endian.
"""

import mmap
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path

from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType

from headway.errors import ModelLoadError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_DIMENSIONS = 4
DEFAULT_ALIGNMENT = 32

_SCALARS = {
    GGUFValueType.UINT8: "<B",
    GGUFValueType.INT8: "<b",
    GGUFValueType.UINT16: "<H",
    GGUFValueType.INT16: "<h",
    GGUFValueType.UINT32: "<I",
    GGUFValueType.INT32: "<i",
    GGUFValueType.FLOAT32: "<f",
    GGUFValueType.BOOL: "<?",
    GGUFValueType.UINT64: "<Q",
    GGUFValueType.INT64: "<q",
    GGUFValueType.FLOAT64: "<d",
}

MetadataValue = int | float | bool | str | list["MetadataValue"]


@dataclass(frozen=True, slots=True)
class GGUFTensor:
    """Where one tensor lies. `shape` is in PyTorch's order, `offset` and `num_bytes` in bytes."""

    name: str
    type: GGMLQuantizationType
    shape: tuple[int, ...]
    offset: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class GGUFHeader:
    """All metadata, and where each tensor lies in the file."""

    path: Path
    metadata: dict[str, MetadataValue]
    tensors: dict[str, GGUFTensor]


def read_header(path: Path) -> GGUFHeader:
    """Read and check the header of `path`.

    Raises ModelLoadError for a wrong magic or version, a truncated file, a value or tensor of
    unknown type, or tensor data that does not lie within the file.
    """
    try:
        with path.open("rb") as file:
            if file.seek(0, 2) == 0:
                raise ModelLoadError(f"{path}: the file is empty")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _parse(path, data)
    except OSError as error:
        raise ModelLoadError(f"{path}: cannot be read: {error.strerror}") from error


def _parse(path: Path, data: mmap.mmap) -> GGUFHeader:
    if data[:4] != MAGIC:
        raise ModelLoadError(f"{path}: not a GGUF file (it does not begin with the magic 'GGUF')")
    cursor = _Cursor(path, data, 4)
    version = cursor.number("<I", "version")
    if version not in VERSIONS:
        raise ModelLoadError(f"{path}: GGUF version {version} is not supported, only 2 and 3")
    num_tensors = cursor.count("tensor count", 24)
    num_values = cursor.count("metadata count", 13)
    metadata: dict[str, MetadataValue] = {}
    for _ in range(num_values):
        key = cursor.string("metadata key")
        metadata[key] = cursor.value(key, cursor.number("<I", key))
    infos = [cursor.tensor() for _ in range(num_tensors)]
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1):
        raise ModelLoadError(f"{path}: general.alignment {alignment!r} is not a power of two")
    start = -(-cursor.at // alignment) * alignment
    tensors: dict[str, GGUFTensor] = {}
    for name, kind, shape, offset in infos:
        if name in tensors:
            raise ModelLoadError(f"{path}: tensor {name!r} is listed twice")
        tensors[name] = _place(path, len(data), name, kind, shape, start + offset)
    return GGUFHeader(path, metadata, tensors)


def _place(
    path: Path, size: int, name: str, kind: int, shape: tuple[int, ...], offset: int
) -> GGUFTensor:
    try:
        type_ = GGMLQuantizationType(kind)
        block, block_bytes = GGML_QUANT_SIZES[type_]
    except (ValueError, KeyError):
        raise ModelLoadError(f"{path}: tensor {name!r} has the unknown type {kind}") from None
    if shape[-1] % block:
        raise ModelLoadError(
            f"{path}: tensor {name!r} of type {type_.name} has rows of {shape[-1]} values, "
            f"not a multiple of {block}"
        )
    num_bytes = prod(shape) // block * block_bytes
    if offset + num_bytes > size:
        raise ModelLoadError(
            f"{path}: truncated or damaged: tensor {name!r} needs bytes {offset} to "
            f"{offset + num_bytes}, the file has {size}"
        )
    return GGUFTensor(name, type_, shape, offset, num_bytes)


class _Cursor:
    """Reads forward; every read is checked against the end of the file."""

    def __init__(self, path: Path, data: mmap.mmap, at: int) -> None:
        self.path = path
        self.data = data
        self.at = at

    def take(self, num_bytes: int, what: str) -> int:
        """Step over `num_bytes` and return where they begin."""
        begin = self.at
        if begin + num_bytes > len(self.data):
            raise ModelLoadError(
                f"{self.path}: truncated or damaged: {what} needs bytes {begin} to "
                f"{begin + num_bytes}, the file has {len(self.data)}"
            )
        self.at = begin + num_bytes
        return begin

    def number(self, form: str, what: str) -> int:
        begin = self.take(struct.calcsize(form), what)
        value: int = struct.unpack_from(form, self.data, begin)[0]
        return value

    def count(self, what: str, least_bytes: int) -> int:
        """A number of entries, each of which takes at least `least_bytes` bytes."""
        value = self.number("<Q", what)
        if value * least_bytes > len(self.data) - self.at:
            raise ModelLoadError(
                f"{self.path}: truncated or damaged: {what} is {value}, "
                f"more than the {len(self.data)} bytes of the file can hold"
            )
        return value

    def string(self, what: str) -> str:
        length = self.number("<Q", what)
        begin = self.take(length, what)
        try:
            return self.data[begin : self.at].decode()
        except UnicodeDecodeError:
            raise ModelLoadError(f"{self.path}: damaged: {what} is not valid UTF-8") from None

    def value(self, key: str, kind: int) -> MetadataValue:
        what = f"metadata {key!r}"
        if kind == GGUFValueType.STRING:
            return self.string(what)
        if kind == GGUFValueType.ARRAY:
            return self._array(key, what)
        return self.number(self._scalar(kind, what), what)

    def _array(self, key: str, what: str) -> MetadataValue:
        kind = self.number("<I", what)
        if kind == GGUFValueType.STRING:
            return [self.string(what) for _ in range(self.count(what, 8))]
        if kind == GGUFValueType.ARRAY:
            return [self._array(key, what) for _ in range(self.count(what, 12))]
        form = self._scalar(kind, what)
        size = struct.calcsize(form)
        count = self.count(what, size)
        begin = self.take(count * size, what)
        return list(struct.unpack_from(f"<{count}{form[1]}", self.data, begin))

    def _scalar(self, kind: int, what: str) -> str:
        if kind not in _SCALARS:
            raise ModelLoadError(f"{self.path}: {what} has the unknown value type {kind}")
        return _SCALARS[GGUFValueType(kind)]

    def tensor(self) -> tuple[str, int, tuple[int, ...], int]:
        """Name, type, shape in PyTorch's order, and offset from the start of the data."""
        name = self.string("tensor name")
        what = f"tensor {name!r}"
        num_dims = self.number("<I", what)
        if not 1 <= num_dims <= MAX_DIMENSIONS:
            raise ModelLoadError(f"{self.path}: {what} has {num_dims} dimensions")
        dims = [self.number("<Q", what) for _ in range(num_dims)]
        kind = self.number("<I", what)
        return name, kind, tuple(reversed(dims)), self.number("<Q", what)
