"""Which extra brings the module that is missing?"""

_EXTRAS = {
    "gateway": (
        "aiohttp",
        "httptools",
        "msgspec",
        "prometheus_client",
        "rich",
        "starlette",
        "typer",
        "uvicorn",
        "uvloop",
        "yaml",
    ),
    "engine": ("gguf", "jinja2", "numpy", "safetensors", "tokenizers", "torch"),
    "bench": ("matplotlib", "scipy"),
}


def missing_extra(error: ModuleNotFoundError) -> str | None:
    """Return the extra to install, or None when the module is none of headway's requirements."""
    package = (error.name or "").partition(".")[0]
    return next((extra for extra, names in _EXTRAS.items() if package in names), None)
