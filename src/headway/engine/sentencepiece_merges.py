"""In which order do the pieces of a SentencePiece model merge?

SentencePiece merges, again and again, the neighbours whose union has the highest score. A list of
merges ordered by the score of what they make does the same, as every conversion of Llama's
tokenizer to `tokenizer.json` shows.
"""

from collections.abc import Mapping


def merges_by_score(pieces: Mapping[str, float]) -> list[tuple[str, str]]:
    """Return all (left, right) whose union is a piece, best score first.

    Splits of one piece are ordered by the scores of their parts, so the result does not depend on
    the order of `pieces`.
    """
    merges = [
        (piece[:cut], piece[cut:])
        for piece in pieces
        for cut in range(1, len(piece))
        if piece[:cut] in pieces and piece[cut:] in pieces
    ]
    merges.sort(key=lambda m: (-pieces[m[0] + m[1]], -pieces[m[0]], -pieces[m[1]], m))
    return merges
