"""The polynomial shear: its Jacobian and inverse, and what it straightens."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression
from sklearn.preprocessing import PolynomialFeatures

from experiments.models.shear import (
    PolynomialShear,
    ShearedSGD,
    _powers,
    bend,
    fit_shear,
    fold_grams,
    monomials,
)
from experiments.targets import get_target
from qaffde import QAFFDESGD, TrainingConfig

GENERATOR = torch.Generator().manual_seed(0)
POWERS = torch.tensor([[0, 0, 0], [0, 2, 0], [1, 1, 0], [0, 3, 0]])


def shear():
    """Columns in the order 1, 0, 2."""
    coefficients = torch.tensor([[1.0, 0.5, 0.0, -0.2], [0.3, 0, 0, 0], [0, 0.1, 0.7, 0]])
    location, scale = torch.tensor([0.2, -1.0, 3.0]), torch.tensor([1.5, 2.0, 0.5])
    parts = (coefficients, location, scale)
    return PolynomialShear(torch.tensor([1, 0, 2]), POWERS, *(part.double() for part in parts))


def points(n=50):
    return 3 * torch.randn(n, 3, generator=GENERATOR, dtype=torch.float64)


def test_it_takes_polynomials_of_columns_before():
    x = points()
    u, v = (x[:, 0] - 0.2) / 1.5, (x[:, 1] + 1) / 2
    expected = torch.stack(
        [
            x[:, 0] - (1 + 0.5 * v**2 - 0.2 * v**3),
            x[:, 1] - 0.3,
            x[:, 2] - (0.1 * v**2 + 0.7 * u * v),
        ],
        1,
    )
    torch.testing.assert_close(shear()(x), expected)


def test_the_inverse_is_exact():
    x = points()
    torch.testing.assert_close(shear().inv(shear()(x)), x)
    torch.testing.assert_close(shear()(shear().inv(x)), x)


def test_volumes_stay():
    x = points(5)
    for row in x:
        jacobian = torch.autograd.functional.jacobian(shear(), row)
        assert float(torch.linalg.det(jacobian)) == pytest.approx(1)
    assert shear().log_abs_det_jacobian(x, shear()(x)).tolist() == [0.0] * 5


def test_monomials_are_products():
    u = points(4)
    expected = torch.stack([(row ** POWERS.double()).prod(1) for row in u])
    torch.testing.assert_close(monomials(u, POWERS), expected)


def fitted(X, weight=None):
    X = torch.as_tensor(X)
    weight = torch.ones(len(X), dtype=X.dtype) if weight is None else weight
    return fit_shear(X, weight, X.mean(0), X.std(0))


def straight(X, **given):
    return fitted(X, **given)(torch.as_tensor(X))


@pytest.mark.parametrize(
    ("name", "column", "variance"), [("arc", 0, 1.0), ("potential_2", 1, 0.16)]
)
def test_what_bends_is_straightened(name, column, variance):
    """x₁ − x₂²/4 of arc has variance 1, and x₂ − sin of potential_2 has 0.4²."""
    X = get_target(name).sample(20_000, 1)
    Z = straight(X)
    assert float(Z[:, column].var()) == pytest.approx(variance, rel=0.03)
    np.testing.assert_array_equal(Z[:, 1 - column], X[:, 1 - column])


def test_three_columns_are_straightened_one_after_the_other():
    rng = np.random.default_rng(0)
    a, b, c = rng.normal(size=(3, 5000))
    X = np.column_stack([a, b + a**2, c + a**3 - a])
    shear = fitted(X)
    assert shear.order.tolist()[0] == 0
    np.testing.assert_allclose(shear(torch.as_tensor(X)).var(0), [1, 1, 1], rtol=0.06)


@pytest.mark.parametrize("name", ["binomial", "star_eight", "potential_1"])
def test_what_does_not_bend_is_left_alone(name):
    X = get_target(name).sample(5000, 1)
    np.testing.assert_array_equal(straight(X), X)


def test_a_tilt_is_left_to_the_density():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 2)) @ np.array([[1.0, 0.8], [0.0, 0.6]])
    np.testing.assert_array_equal(straight(X), X)


def test_few_rows_are_left_alone():
    X = get_target("arc").sample(30, 1)
    np.testing.assert_array_equal(straight(X), X)


def test_a_column_that_is_a_function_of_another_stays():
    """Nothing would be left of it, and its density does not exist."""
    x = np.random.default_rng(0).normal(size=2000)
    X = np.column_stack([x, x**2])
    np.testing.assert_array_equal(straight(X), X)


def test_regressions_are_those_of_scikit_learn():
    X = get_target("arc").sample(2000, 1)
    U = (X - X.mean(0)) / X.std(0)
    rows, powers = torch.as_tensor(U), _powers(2, len(U))
    gain, found = bend(fold_grams(rows, torch.ones(2000), powers), powers, 0, [1])
    degree = int(powers[found.terms].sum(1).max())
    phi = PolynomialFeatures(degree).fit_transform(U[:, 1:])
    expected = LinearRegression(fit_intercept=False).fit(phi, U[:, 0]).coef_
    np.testing.assert_allclose(found.coefficients, expected, rtol=1e-4, atol=1e-6)
    assert gain > 0.5


def test_held_out_errors_are_those_of_folds_left_out():
    X = get_target("arc").sample(500, 1)
    U = (X - X.mean(0)) / X.std(0)
    powers = _powers(2, len(U))
    _, found = bend(fold_grams(torch.as_tensor(U), torch.ones(500), powers), powers, 0, [1])
    degree = int(powers[found.terms].sum(1).max())
    phi, error = PolynomialFeatures(degree).fit_transform(U[:, 1:]), 0.0
    for fold in range(5):
        out = np.arange(500) % 5 == fold
        line = LinearRegression(fit_intercept=False).fit(phi[~out], U[~out, 0])
        error += np.square(U[out, 0] - line.predict(phi[out])).sum()
    assert found.error == pytest.approx(error, rel=1e-5)


def test_weights_are_copies():
    X = get_target("arc").sample(200, 1)
    copies, powers = np.where(X[:, 1] > 0, 3, 1), _powers(2, 200)
    repeated = torch.as_tensor(np.repeat(X, copies, axis=0))
    one = fold_grams(torch.as_tensor(X), torch.as_tensor(copies), powers)
    many = fold_grams(repeated, torch.ones(len(repeated)), powers)
    torch.testing.assert_close(one.sum(0), many.sum(0))


def test_rows_of_no_weight_do_not_bend_anything():
    X = get_target("binomial").sample(2000, 1)
    X[1000:, 0] = X[1000:, 1] ** 2
    weight = torch.ones(2000, dtype=torch.float64)
    weight[1000:] = 0
    assert straight(X, weight=weight).equal(torch.as_tensor(X))
    assert not straight(X).equal(torch.as_tensor(X))


def test_a_density_behind_a_shear_is_a_change_of_variables_of_unit_volume():
    X = get_target("arc").sample(300, 1)
    options = {"n_features": 12, "bandwidth": 0.8, "base_measure": "gaussian", "ridge": 0.01}
    options |= {"training": TrainingConfig(max_iter=5), "random_state": 0}
    model = ShearedSGD(**options, transformation="shear").fit(X)
    assert model.transformation == "shear"
    codes = model.density_.transform(torch.as_tensor(X)).numpy()
    assert np.var(codes[:, 0]) < 0.9 * np.var(X[:, 0])
    plain = QAFFDESGD(**options).fit(codes)
    np.testing.assert_allclose(model.score_samples(X), plain.score_samples(codes))
    expected = model.density_.transform.inv(torch.as_tensor(plain.sample(20, random_state=0)))
    np.testing.assert_allclose(model.sample(20, random_state=0), expected)
    same = ShearedSGD(**options).fit(X).score_samples(X)
    np.testing.assert_array_equal(same, QAFFDESGD(**options).fit(X).score_samples(X))
