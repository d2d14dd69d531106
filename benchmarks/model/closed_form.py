"""Parameters and FLOP per token by formula, which reproduce every digit of the paper's Table 1.

Conventions, each needed for a digit: a multiply-add is 2 FLOP; only matrix products count; the tied head is applied to
every row, [CLS] rows too, and n includes them; NEST's set head is left out. Longformer: w keys per query, including
its own, and 2 · N · m · d for keys and values of the anchors' own projections over all N rows. Nyströmformer: the
N × m matrix times the inverse first (0.1569 in the other order), four products per iteration. Performer: the
normalizer is one more column (0.1639 with and without).
"""

from collections.abc import Callable

from benchmarks.model.sizes import Sizes
from nest_model.model.systems.nystromformer.encoder import ITERATIONS


def parameters(model: str, sizes: Sizes) -> int:
    """Return the number of parameters, the tied embedding counted once."""
    d = sizes.d_model
    block = _block_weights(sizes) + 2 * d
    blocks = sizes.layers * (2 if model == "nest" else 1)
    anchors = 3 * d * d * sizes.layers if model == "longformer" else 0
    return sizes.vocab_size * d + blocks * block + anchors + d


def flop_per_token(model: str, sizes: Sizes) -> float:
    """Return the FLOP per row of one forward pass with the head on every row."""
    layer = 2 * _block_weights(sizes) * sizes.length + _CORES[model](sizes)
    head = 2 * sizes.d_model * sizes.vocab_size * sizes.length
    return (sizes.layers * layer + head) / sizes.length


def _block_weights(sizes: Sizes) -> int:
    return 4 * sizes.d_model**2 + 3 * sizes.d_model * sizes.d_ff


def _dense(sizes: Sizes) -> int:
    return 4 * sizes.length**2 * sizes.d_model


def _longformer(sizes: Sizes) -> int:
    window = 4 * sizes.length * sizes.window * sizes.d_model
    to_and_from_anchors = 2 * 4 * sizes.length * sizes.sets * sizes.d_model
    own_projections = 2 * (2 * sizes.length + sizes.sets) * sizes.d_model**2
    return window + to_and_from_anchors + own_projections


def _performer(sizes: Sizes) -> int:
    products = 4 * 2 * sizes.length * sizes.features * sizes.d_model  # of q, of k, φ(k)ᵀ v, φ(q) of that
    normaliser = 2 * sizes.length * sizes.features * sizes.heads
    return products + normaliser


def _nystromformer(sizes: Sizes) -> int:
    rows, marks = sizes.length, sizes.sets
    softmaxes = 2 * (2 * rows * marks + marks * marks) * sizes.d_model
    inverse = ITERATIONS * 4 * 2 * marks**3 * sizes.heads
    times_inverse = 2 * rows * marks * marks * sizes.heads
    values = 2 * 2 * rows * marks * sizes.d_model
    return softmaxes + inverse + times_inverse + values


def _nest(sizes: Sizes) -> int:
    set_wise = 4 * sizes.length * sizes.set_rows * sizes.d_model
    cross_set = 2 * _block_weights(sizes) * sizes.sets + 4 * sizes.sets**2 * sizes.d_model
    return set_wise + cross_set


_CORES: dict[str, Callable[[Sizes], int]] = {
    "bert": _dense,
    "bert_mea": _dense,
    "longformer": _longformer,
    "performer": _performer,
    "nystromformer": _nystromformer,
    "nest": _nest,
}
"""FLOP of a layer beyond one block on every row of a sequence."""
