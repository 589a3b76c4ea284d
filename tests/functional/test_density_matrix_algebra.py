"""The rank update against a loop of outer products, and the spectrum against its definition."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from qaffde import functional as QF

DOUBLE = torch.float64


def random_features(n, D, seed=0, dtype=DOUBLE):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, D, generator=generator, dtype=DOUBLE).to(dtype)


def by_loop(phi, weight=None):
    weight = torch.ones(len(phi)) if weight is None else weight
    rho = torch.zeros(phi.shape[1], phi.shape[1], dtype=DOUBLE)
    for row, w in zip(phi.double(), weight, strict=True):
        rho += w * torch.outer(row, row)
    return rho


def accumulate(batches, D):
    rho = torch.zeros(D, D, dtype=DOUBLE)
    for phi in batches:
        QF.add_rank_update(rho, phi)
    return QF.symmetrize_lower(rho)


@pytest.mark.parametrize(("dtype", "atol"), [(torch.float64, 1e-12), (torch.float32, 1e-4)])
@pytest.mark.parametrize("n", [1, 5, 64])
def test_update_equals_a_loop_of_outer_products(n, dtype, atol):
    phi = random_features(n, 7, dtype=dtype)
    assert torch.allclose(accumulate([phi], 7), by_loop(phi), rtol=0, atol=atol)


def test_update_adds_in_place():
    phi, start = random_features(10, 4), random_features(4, 4, seed=1)
    rho = start.clone()
    assert QF.add_rank_update(rho, phi) is None
    assert torch.allclose(rho.tril(), (start + by_loop(phi)).tril())


def test_update_leaves_the_features_alone():
    phi = random_features(10, 4)
    before = phi.clone()
    accumulate([phi], 4)
    assert torch.equal(phi, before)


@pytest.mark.parametrize("layout", [lambda x: x.T.contiguous().T, lambda x: x.repeat(1, 2)[:, :4]])
def test_features_of_any_layout(layout):
    phi = random_features(10, 4)
    assert torch.allclose(accumulate([layout(phi)], 4), by_loop(phi))


@pytest.mark.parametrize("size", [1, 3, 10])
def test_batches_add_up(size):
    phi = random_features(10, 6)
    assert torch.allclose(accumulate(phi.split(size), 6), by_loop(phi), rtol=0, atol=1e-13)


@given(
    weight=st.lists(st.floats(0, 1e3), min_size=1, max_size=20),
    D=st.integers(1, 8),
    seed=st.integers(0, 1000),
)
@settings(max_examples=40, deadline=None)
def test_weighted_density_matrix_is_symmetric_positive_with_trace_of_the_weights(weight, D, seed):
    weight = torch.tensor(weight, dtype=DOUBLE)
    phi = torch.nn.functional.normalize(random_features(len(weight), D, seed))
    rho = accumulate([phi * weight.sqrt()[:, None]], D)
    assert torch.allclose(rho, by_loop(phi, weight), rtol=0, atol=1e-10)
    assert torch.equal(rho, rho.T)
    assert torch.isclose(rho.trace(), weight.sum(), atol=1e-10)
    assert torch.linalg.eigvalsh(rho).min() > -1e-10


def test_symmetrize_reads_the_lower_triangle_only():
    A = random_features(5, 5)
    S = QF.symmetrize_lower(A)
    assert torch.equal(S, S.T)
    assert torch.equal(S.tril(), A.tril())
    assert torch.equal(QF.symmetrize_lower(A.tril() + 9 * A.triu(1)), S)


@given(D=st.integers(1, 10), n=st.integers(1, 15), seed=st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_all_eigenpairs_rebuild_the_matrix(D, n, seed):
    rho = by_loop(random_features(n, D, seed))
    lam, V = QF.leading_eigenpairs(rho, D)
    assert torch.allclose(V.T @ (lam[:, None] * V), rho, atol=1e-10)
    assert torch.allclose(V @ V.T, torch.eye(D, dtype=DOUBLE), atol=1e-10)
    assert (lam.diff() <= 0).all()
    assert (lam >= 0).all()


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_leading_eigenpairs_are_the_best_approximation_of_their_rank(rank):
    rho = by_loop(random_features(20, 6))
    lam, V = QF.leading_eigenpairs(rho, rank)
    assert (lam.shape, V.shape) == ((rank,), (rank, 6))
    left = torch.linalg.eigvalsh(rho)[: 6 - rank]
    error = rho - V.T @ (lam[:, None] * V)
    assert torch.allclose(error.norm(), left.norm())


def test_negative_eigenvalues_are_clipped():
    lam, _ = QF.leading_eigenpairs(torch.diag(torch.tensor([1.0, -1e-17])), 2)
    assert lam.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("rank", "min_trace", "expected"),
    [
        (1, 1.0, 1),
        (4, 0.1, 4),
        (99, 1.0, 5),
        (1.0, 0.1, 5),
        (0.4, 1.0, 2),
        (0.5, 1.0, 3),
        (1e-9, 1.0, 1),
        ("auto", 0.5, 1),
        ("auto", 0.65, 2),
        ("auto", 0.99, 4),
        ("auto", 1.0, 4),
    ],
)
def test_rank_is_a_number_a_share_or_a_trace(rank, min_trace, expected):
    lam = torch.tensor([4.0, 2.0, 1.0, 1.0, 0.0], dtype=DOUBLE)
    assert QF.resolve_rank(rank, lam, min_trace) == expected


@given(
    lam=st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=20),
    min_trace=st.floats(0.01, 1.0),
)
def test_automatic_rank_is_the_smallest_that_keeps_the_trace(lam, min_trace):
    lam = torch.tensor(lam, dtype=DOUBLE).sort(descending=True).values
    r = QF.resolve_rank("auto", lam, min_trace)
    assert 1 <= r <= len(lam)
    assert lam[:r].sum() >= (min_trace - 1e-12) * lam.sum()
    assert lam[: r - 1].sum() < min_trace * lam.sum() * (1 + 1e-12)


def decaying(n_matrices, D, seed=0):
    generator = torch.Generator().manual_seed(seed)
    Q, _ = torch.linalg.qr(torch.randn(n_matrices, D, D, generator=generator).double())
    lam = 0.8 ** torch.arange(D, dtype=torch.float64)
    return (Q * lam) @ Q.mT, lam


@pytest.mark.parametrize(("tolerance", "error"), [(0.0, 1e-12), (1e-14, 1e-10), (1e-3, 1e-4)])
@pytest.mark.parametrize("rank", [1, 7, 59])
def test_few_eigenpairs_are_those_of_all(tolerance, error, rank):
    M, lam = decaying(3, 60)
    found, V = QF.leading_eigenpairs(M, rank, tolerance)
    assert (found.shape, V.shape) == ((3, rank), (3, rank, 60))
    assert torch.allclose(found, lam[:rank].expand(3, -1), atol=error)
    assert torch.allclose(V @ V.mT, torch.eye(rank).double(), atol=max(error, 1e-5))
    assert torch.allclose(M @ V.mT, V.mT * found[:, None], atol=10 * error)


def test_few_eigenpairs_are_the_same_in_every_call():
    M, _ = decaying(1, 80)
    first, again = (QF.leading_eigenpairs(M[0], 5, 1e-3) for _ in range(2))
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    alone = QF.leading_eigenpairs(torch.cat([M, M]), 5, 1e-3)
    assert torch.equal(alone[1][1], first[1])


def test_iterations_start_from_no_special_direction():
    v = torch.ones(40, dtype=torch.float64)
    v[::2] = -1.0  # orthogonal to a vector of ones
    lam, V = QF.leading_eigenpairs(torch.outer(v, v), 1, 1e-6)
    assert torch.allclose(lam, torch.tensor([40.0]).double())
    assert torch.allclose(V[0].abs(), torch.full((40,), 40**-0.5).double(), atol=1e-6)


@pytest.mark.parametrize("scale", [0.0, 1e-30])
def test_matrices_of_nothing_have_eigenpairs(scale):
    lam, V = QF.leading_eigenpairs(scale * torch.eye(30).double(), 2, 1e-3)
    assert torch.allclose(lam, torch.full((2,), scale).double())
    assert torch.allclose(V @ V.T, torch.eye(2).double(), atol=1e-5)


def test_born_rule_of_many_states_is_that_of_each():
    generator = torch.Generator().manual_seed(0)
    L = torch.randn(3, 2, 5, generator=generator).double()
    phi, G = torch.randn(4, 5, generator=generator).double(), torch.eye(5).double() + 0.1
    born, mass = QF.born_rule(phi, L), QF.born_mass(L, G)
    for c, factor in enumerate(L):
        assert torch.allclose(born[:, c], ((phi @ factor.T) ** 2).sum(1))
        assert torch.allclose(QF.born_rule(phi, factor), born[:, c])
        assert torch.allclose(mass[c], (factor @ G @ factor.T).trace())
        assert torch.allclose(QF.born_mass(factor, G), mass[c])
    assert torch.allclose(QF.born_mass(L, torch.ones(5)), (L**2).sum((1, 2)))
