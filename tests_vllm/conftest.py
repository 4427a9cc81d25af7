"""Where is the model, and are these tests run where vLLM is?"""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def model() -> str:
    """The Hugging Face folder that `make test-vllm` makes (`tests_vllm/hf_folder.py`)."""
    folder = os.environ.get("HEADWAY_TEST_MODEL", "")
    assert (Path(folder) / "config.json").is_file(), "HEADWAY_TEST_MODEL names no model folder"
    return folder
