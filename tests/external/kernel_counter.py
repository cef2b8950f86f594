"""Counts the kernels that PyTorch launches, and the bytes that they move, on the meta device: nothing
is allocated and no GPU is needed, torch's dispatcher names every operation.

Views and allocations launch nothing. An operation reads each input once, as far as it is stored
(expanded dimensions count once), and writes its results. Attention is one operation forward and one
backward, as of flash kernels.
"""

import torch
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

NOTHING = {
    "_reshape_alias", "_unsafe_view", "alias", "detach", "empty", "empty_like", "empty_strided",
    "lift_fresh", "new_empty", "new_empty_strided",
}  # fmt: skip
PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "_grouped_mm"}
# What the composite operation launches on a device: zeros, then a copy into a part of them.
CLEARED_AND_COPIED = {"slice_backward", "select_backward"}


def stored(tensor):
    """Bytes of a tensor's elements, those of expanded dimensions once."""
    elements = 1
    for size, stride in zip(tensor.shape, tensor.stride()):
        elements *= size if stride else 1
    return elements * tensor.element_size()


class Counter(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.operations = []  # name, kernels, bytes, shapes

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if any(issubclass(each, DTensor) for each in types):  # counted as its local operations
            return NotImplemented
        result = function(*args, **(kwargs or {}))
        name = function.overloadpacket._qualified_op_name.split("::")[1]
        if name in NOTHING or function.is_view:
            return result
        read = [each for each in tree_flatten((args, kwargs))[0] if isinstance(each, torch.Tensor)]
        written = [each for each in tree_flatten(result)[0] if isinstance(each, torch.Tensor)]
        moved = sum(map(stored, read)) + sum(map(stored, written))
        kernels = 1
        if name.startswith("new_"):  # the input gives a format alone
            moved = sum(map(stored, written))
        if name in CLEARED_AND_COPIED:
            kernels, moved = 2, moved + sum(map(stored, read))
        self.operations.append((name, kernels, moved, [tuple(each.shape) for each in read]))
        return result

    def show(self, unit):
        """Every operation, with its bytes in this unit."""
        for operation, launched, size, shapes in self.operations:
            print(f"    {operation:24} {launched} {size / unit:8.2f} {shapes}")


library = torch.library.Library("counted", "DEF")
library.define("attention(Tensor q, Tensor k, Tensor v) -> Tensor")
library.define("attention_backward(Tensor g, Tensor q, Tensor k, Tensor v, Tensor o) "
               "-> (Tensor, Tensor, Tensor)")  # fmt: skip
library.impl("attention", lambda q, k, v: torch.empty_like(q), "Meta")
library.impl(
    "attention_backward",
    lambda g, q, k, v, o: (torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)),
    "Meta",
)


class Attention(torch.autograd.Function):
    @staticmethod
    def forward(context, q, k, v):
        output = torch.ops.counted.attention(q, k, v)
        context.save_for_backward(q, k, v, output)
        return output

    @staticmethod
    def backward(context, gradient):
        return torch.ops.counted.attention_backward(gradient, *context.saved_tensors)
