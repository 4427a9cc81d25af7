"""What can this machine compute natively, and how much memory may be used?"""

from pathlib import Path

_BF16_FLAGS = frozenset(("avx512_bf16", "amx_bf16", "bf16"))
"""x86's two, and Arm's."""


def multiplies_bf16(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether the processor has instructions that multiply bfloat16; False when unknown."""
    try:
        lines = cpuinfo.read_text(errors="replace").splitlines()
    except OSError:
        return False
    flags = (line.partition(":") for line in lines)
    words = (
        word
        for key, _, rest in flags
        if key.strip().lower() in ("flags", "features")
        for word in rest.split()
    )
    return not _BF16_FLAGS.isdisjoint(words)


def available_bytes(
    meminfo: Path = Path("/proc/meminfo"), cgroup: Path = Path("/sys/fs/cgroup")
) -> int | None:
    """Memory that can be taken now, within the container's limit; None when unknown."""
    found = []
    try:
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                found.append(int(line.split()[1]) * 1024)
        limit = (cgroup / "memory.max").read_text().strip()
        if limit != "max":
            found.append(max(0, int(limit) - int((cgroup / "memory.current").read_text())))
    except (OSError, ValueError):
        pass
    return min(found, default=None)
