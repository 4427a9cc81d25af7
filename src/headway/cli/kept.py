"""What is said of the results when a later run failed or was interrupted?"""

import sys


def tell_kept(num_ended: int, num_planned: int, what: str = "runs") -> None:
    """Say on stderr how many had ended, unless all have."""
    if num_ended < num_planned:
        kept = ", whose results are kept" if num_ended else ""
        text = f"stopped when {num_ended} of {num_planned} {what} had ended{kept}"
        sys.stderr.write(f"headway: {text}\n")
