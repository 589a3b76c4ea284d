"""Gram matrices by their definition."""

import torch


def gram_matrix(W, b, a, characteristic):
    """Gram matrix for any measure, from its characteristic function alone.

    Row by row, in O(D²d) time and O(Dd) memory. Measures whose pairs factorize do better.

    Parameters
    ----------
    W, b, a : Tensors of shapes (D, d), (D,), (D,)
    characteristic : callable
        Maps frequencies of shape (D, d) to complex values of shape (D,).

    Returns
    -------
    Tensor of shape (D, D)
    """

    def row(w, phase):
        difference = torch.exp(1j * (phase - b)) * characteristic(w - W)
        total = torch.exp(1j * (phase + b)) * characteristic(w + W)
        return (difference + total).real

    rows = torch.stack([row(w, phase) for w, phase in zip(W, b, strict=True)])
    return 0.5 * torch.outer(a, a) * rows
