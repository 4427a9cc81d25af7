"""How is a matrix of the model multiplied?"""

import os
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

# PyTorch keeps what it prepared for each batch size that a product has met, about 1 MB each, by
# default for the last 1024 in each thread. To prepare again costs nothing that can be measured.
os.environ.setdefault("LRU_CACHE_CAPACITY", "64")

PACKED: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]  # torch's gap
"""Whether this PyTorch has oneDNN, which multiplies by weights in an order that it chooses."""


def can_pack(dtype: torch.dtype) -> bool:
    """Whether oneDNN multiplies `dtype` on this processor."""
    if dtype is torch.bfloat16:
        return PACKED and bool(_has_bf16())
    return PACKED


# The packed products have no public names; torch.compile calls them by these.
_pack: Callable[..., Tensor]
_unary: Callable[..., Tensor]
_binary: Callable[..., Tensor]
_has_bf16: Callable[[], bool]
if PACKED:
    _has_bf16 = torch.ops.mkldnn._is_mkldnn_bf16_supported  # noqa: SLF001 - see above
    _pack = torch.ops.mkldnn._reorder_linear_weight  # noqa: SLF001 - see above
    _unary = torch.ops.mkldnn._linear_pointwise.default  # noqa: SLF001 - see above
    _binary = torch.ops.mkldnn._linear_pointwise.binary  # noqa: SLF001 - see above


class Linear:
    """`x @ weight.T + bias`, with what usually follows it done in the same pass where possible.

    `weight` is `[outputs, inputs]`, `x` `[rows, inputs]`. Packed once at start, the product of a
    few rows, which is bound by reading the weight, takes about half the time of `F.linear`.
    """

    __slots__ = ("_bias", "_packed", "_weight")

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None,
        dtype: torch.dtype,
        *,
        packed: bool | None = None,
    ) -> None:
        weight = weight.to(dtype).contiguous()
        self._bias = None if bias is None else bias.to(dtype)
        self._packed = can_pack(dtype) if packed is None else packed
        if self._packed:
            weight = _pack(weight, None)
        self._weight = weight

    def __call__(self, x: Tensor) -> Tensor:
        """`[rows, outputs]`."""
        if self._packed:
            return _unary(x, self._weight, self._bias, "none", [], "")
        return functional.linear(x, self._weight, self._bias)

    def silu(self, x: Tensor) -> Tensor:
        """`silu(x @ weight.T)`."""
        if self._packed:
            return _unary(x, self._weight, self._bias, "swish", [], "")
        return functional.silu(functional.linear(x, self._weight, self._bias), inplace=True)

    def times(self, x: Tensor, other: Tensor) -> Tensor:
        """`(x @ weight.T) * other`."""
        if self._packed:
            return _binary(x, other, self._weight, self._bias, "mul")
        return functional.linear(x, self._weight, self._bias).mul_(other)

    def plus(self, x: Tensor, other: Tensor) -> Tensor:
        """`(x @ weight.T) + other`."""
        if self._packed:
            return _binary(x, other, self._weight, self._bias, "add")
        return functional.linear(x, self._weight, self._bias).add_(other)
