"""How are the weights of a Hugging Face folder read?"""

import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from headway.engine.model_config import config_from_hf
from headway.engine.weights import check_shapes
from headway.errors import ModelLoadError

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
TENSOR_TYPES = ("F32", "F16", "BF16")


class HFWeights:
    """A checked folder with config.json and safetensors, one file or sharded; a WeightSource.

    Raises ModelLoadError for a file that is missing, damaged or truncated, an unknown model type,
    a tensor of an unsupported type, a tensor that is missing or of a wrong shape.
    """

    rotary_interleaved = False

    def __init__(self, folder: Path) -> None:
        self.where = str(folder)
        self.config = config_from_hf(str(folder / "config.json"), _json(folder / "config.json"))
        self._files: dict[str, Path] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        listed = _weight_map(folder)
        for file in sorted({folder / SINGLE} if listed is None else set(listed.values())):
            self._read_shapes(file)
        for name, file in ({} if listed is None else listed).items():
            if self._files.get(name) != file:
                raise ModelLoadError(f"{file}: tensor {name} is missing, {INDEX} says it is there")
        check_shapes(self)

    def load(self, name: str) -> Tensor:
        """Read one tensor as float32."""
        file = self._files[name]
        try:
            with safe_open(file, framework="pt") as tensors:
                tensor: Tensor = tensors.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise ModelLoadError(f"{file}: tensor {name} cannot be read: {error}") from error
        return tensor.to(torch.float32)

    def _read_shapes(self, file: Path) -> None:
        if not file.is_file():
            raise ModelLoadError(f"{file}: the weight file is missing")
        try:
            with safe_open(file, framework="pt") as tensors:
                for name in tensors.keys():  # noqa: SIM118 - not a mapping
                    view = tensors.get_slice(name)
                    if view.get_dtype() not in TENSOR_TYPES:
                        raise ModelLoadError(
                            f"{file}: tensor {name} has type {view.get_dtype()}, "
                            f"supported are {', '.join(TENSOR_TYPES)}"
                        )
                    self._files[name] = file
                    self.shapes[name] = tuple(view.get_shape())
        except (SafetensorError, OSError) as error:
            raise ModelLoadError(f"{file}: damaged or truncated: {error}") from error


def _weight_map(folder: Path) -> dict[str, Path] | None:
    """Tensor name -> file of a sharded folder; None when one file holds everything."""
    index = folder / INDEX
    if not index.is_file():
        if (folder / SINGLE).is_file():
            return None
        raise ModelLoadError(f"{folder}: holds neither {SINGLE} nor {INDEX}")
    names = _json(index).get("weight_map")
    if not isinstance(names, dict) or not names:
        raise ModelLoadError(f"{index}: weight_map is missing or empty")
    files = {}
    for name, file in names.items():
        if not isinstance(file, str) or Path(file).name != file:
            raise ModelLoadError(f"{index}: weight_map.{name} is not the name of a file: {file!r}")
        files[name] = folder / file
    return files


def _json(path: Path) -> dict[str, object]:
    try:
        values = json.loads(path.read_bytes())
    except OSError as error:
        raise ModelLoadError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ModelLoadError(f"{path}: not valid JSON: {error}") from error
    if not isinstance(values, dict):
        raise ModelLoadError(f"{path}: not a JSON object")
    return values
