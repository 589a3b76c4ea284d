"""Recipes of densities of tables: parts, columns, mixtures, trains and chains."""

import math
from typing import Any

from torch import Tensor

from qaffde import nn
from qaffde.files.fields import (
    MAX_COEFFICIENT,
    Check,
    Fields,
    checked,
    item,
    items,
    number,
    optional,
    tensor,
    whole,
)
from qaffde.files.values import RECIPES, Recipe, must
from qaffde.nn.chain import FAR, GIVEN, head_of, n_inputs_of
from qaffde.nn.parts import MAX_DEVIATION, Part
from qaffde.parameters import check_choice

MAX_FUNCTIONS = 1024
"""Of one part of a table."""
MAX_WIDTH, MAX_BLOCKS = 8192, 32
"""Of a network."""


def _charge_products(f: Fields) -> None:
    """Account for the products of two functions of one column."""
    f.charge(64 * f["n_functions"] ** 3)


def _of_any_size(n_axes: int) -> Check:
    """A tensor with so many axes, each of any length."""

    def check(f: Fields, name: str, value: Any) -> None:
        item(Tensor)(f, name, value)
        f.require(value.ndim == n_axes, name, f"has not {n_axes} axes")
        tensor(" ".join(map(str, value.shape)) + ", limited")(f, name, value)

    return check


_vector, _matrix = _of_any_size(1), _of_any_size(2)


def check_factors(f: Fields) -> None:
    """Complain about factors that are not those of the parts that are no lines."""
    others = [part for part in f["parts"] if not part.is_line]
    fits = [factor.part for factor in f["factors"]] == others
    f.require(fits, "factors", "are not those of the parts")


def _check_measure(f: Fields) -> None:
    n_lines = sum(part.is_line for part in f["parts"])
    f.require(f["lines"].means.shape[1] == n_lines, "lines", "are not the parts")
    f.agree("parts", "d", len(f["parts"]))


def _check_lines(f: Fields) -> None:
    lines, waves, parts = f["lines"], f["waves"], f["parts"]
    n_lines, n_waves = sum(part.is_line for part in parts), len(set(waves))
    f.require((0 if lines is None else lines.n_dims) == n_lines, "lines", "are not the parts")
    fits = all(k < len(parts) and not parts[k].is_line for k in waves)
    f.require(fits and n_waves == len(waves), "waves", "are not parts beside lines")
    if lines is not None:
        f.agree("lines", "K", len(lines.terms))
        widths = {term.form.W.shape[1] for term in lines.terms}
        f.require(widths == {n_lines + n_waves}, "waves", "are not those of the terms")


def _check_table(f: Fields) -> None:
    density, columns = f["density"], f["columns"]
    parts = tuple(part for column in columns for part in column.parts)
    base = getattr(getattr(density, "density", None), "measure", None)
    if isinstance(density, nn.PartsDensity):
        f.require(parts == density.parts, "columns", "are not those of the parts")
    elif isinstance(base, nn.FactoredMeasure):
        f.require(parts == base.parts, "columns", "are not those of the parts")
    else:
        f.require(all(part.is_line for part in parts), "columns", "are not real")
        f.require(len(columns) == f.sizes_of(density).get("d"), "columns", "are not all")
    f.agree("columns", "d", len(columns))


def _check_train(f: Fields) -> None:
    """Complain about shapes that do not fit each other."""
    places, bond = f["places"], f["start"].shape[1]
    d = sum(place >= 0 for place in places)
    f.require(sorted(p for p in places if p >= 0) == list(range(d)), "places", "are not all")
    f.agree("places", "q", d)
    for name in ("mixers", "loadings", "bases"):
        f.require(len(f[name]) == len(places), name, "are not as many as places")
    for W, V, basis in zip(f["mixers"], f["loadings"], f["bases"], strict=True):
        fits = len(W) == bond and V.shape == (W.shape[1], basis.n_functions)
        f.require(fits, "mixers", "do not fit each other")
        bond = W.shape[1]
        f.charge(64 * bond**2)
    f.require(len(f["end"]) == bond, "end", "does not fit")


def _train(f: Fields) -> nn.TensorTrain:
    train = nn.TensorTrain(**f).requires_grad_(False)
    f.require(abs(float(train.log_mass())) < 1e-6, "end", "does not give mass one")
    return train


def _network_fields(network: nn.MaskedNetwork) -> dict[str, Any]:
    names = ("n_inputs", "n_outputs", "width", "n_blocks", "dropout")
    layers = network.layers
    return {
        **{name: getattr(network, name) for name in names},
        "weights": [layer.weight.detach() for layer in layers],
        "biases": [layer.bias.detach() for layer in layers],
    }


def _network(f: Fields) -> nn.MaskedNetwork:
    """The network, once its outputs are known to be finite."""
    weights, biases = f.pop("weights"), f.pop("biases")
    fits = len(f["n_inputs"]) == len(f["n_outputs"])
    f.require(fits, "n_outputs", "are not as many as n_inputs")
    n_numbers = f["width"] * (sum(f["n_inputs"]) + sum(f["n_outputs"]) + 2 * f["width"])
    f.charge(16 * n_numbers)
    network = nn.MaskedNetwork(**f).double()
    f.require(len(weights) == len(biases) == len(network.layers), "weights", "are not all")
    largest = FAR * math.sqrt(sum(f["n_inputs"]))
    for layer, weight, bias in zip(network.layers, weights, biases, strict=True):
        fits = weight.shape == layer.weight.shape and bias.shape == layer.bias.shape
        f.require(fits, "weights", "do not fit")
        layer.load_state_dict({"weight": weight, "bias": bias, "mask": layer.mask})
        largest += largest * float(weight.norm()) + float(bias.norm())
    f.require(largest < MAX_COEFFICIENT**0.25, "weights", "are beyond measure")
    return network


def _check_chain(f: Fields) -> None:
    """Complain about links that do not fit the network, or places that are not all."""
    network, links, places, given = f["network"], f["links"], f["places"], f["given"]
    f.require(len(f["shape"]) == 3, "shape", "are not three numbers")
    C, K, r = f["shape"]
    f.charge(64 * K**3 + 64 * C * r)
    seen = [n_inputs_of(part, n - 1) for part, n in zip(links, network.n_inputs, strict=False)]
    f.require(network.n_inputs == seen, "links", "do not fit")
    sizes = [head_of(part, f["shape"]).n_inputs for part in links]
    f.require(network.n_outputs == sizes, "links", "do not fit")
    f.require(len(places) == len(given) <= len(links), "places", "are not all")
    n_given = sum(place == GIVEN for place in places)
    whole_places = sorted(places) == [GIVEN] * n_given + list(range(len(places) - n_given))
    f.require(whole_places, "places", "are not all")
    f.require(all(place == GIVEN for place in places[:n_given]), "places", "are not all")
    f.agree("places", "q", len(places) - n_given)
    for t in f["optional"]:
        fits = t < len(links) and links[t].is_line and links[t - 1].size == 2
        f.require(fits, "optional", "are not beside codes")
    for t, value in enumerate(given[:n_given].tolist()):
        fits = t in f["optional"] and given[t - 1] == 1 if math.isnan(value) else True
        size = links[t].size
        fits = fits and (not size or value in range(size))
        f.require(fits, "given", "is no value of a part")


def _ends_fit(f: Fields) -> object:
    """Whether ends are outside the knots; without knots they are infinite."""
    knots, (lower, upper) = f["knots"], f["ends"]
    return lower < knots[0] and knots[-1] < upper if len(knots) else f["ends"].isinf().all()


_n_functions = whole(1, MAX_FUNCTIONS)


RECIPES |= {
    "FactoredMeasure": Recipe(
        nn.FactoredMeasure,
        check_factors,
        _check_measure,
        parts=items(Part, tuple, least=1),
        lines=(nn.GaussianMeasure, "K"),
        factors=items((nn.Factor, "K")),
    ),
    "Part": Recipe(
        Part, kind=checked(check_choice, choices=("line", "circle", "codes")), size=whole(0)
    ),
    "CodeFactor": Recipe(nn.CodeFactor, log_mass="K C, infinite, mass one"),
    "CircleFactor": Recipe(
        nn.CircleFactor,
        must("deviation", lambda f: (f["deviation"] <= MAX_DEVIATION).all(), "is out of range"),
        mean="K",
        deviation="K, positive",
    ),
    "FactoredMixture": Recipe(
        nn.FactoredMixture,
        check_factors,
        _check_lines,
        must("log_weights", lambda f: f["log_weights"].max().isfinite(), "leave nothing"),
        parts=items(Part, tuple, least=1),
        log_weights="K, infinite",
        lines=optional(nn.BornMixture),
        factors=items((nn.Factor, "K")),
        waves=items(whole(0)),
    ),
    "WaveBasis": Recipe(
        nn.WaveBasis,
        must("knots", lambda f: (f["knots"][:, 0] == 0).all(), "must rise from 0"),
        must("knots", lambda f: (f["knots"][:, -1] == 1).all(), "must rise to 1"),
        _charge_products,
        n_functions=_n_functions,
        knots="2 J, rising",
    ),
    "CircleBasis": Recipe(nn.CircleBasis, _charge_products, n_functions=_n_functions),
    "CodeBasis": Recipe(
        nn.CodeBasis,
        lambda f: f.charge(8 * f["n_functions"] ** 2 * len(f["masses"])),
        masses="C, positive, sum one",
        n_functions=_n_functions,
    ),
    "TensorTrain": Recipe(
        nn.TensorTrain,
        _check_train,
        make=_train,
        mixers=items(_matrix, least=1),
        loadings=items(_matrix, least=1),
        bases=items(nn.ColumnBasis, least=1),
        places=items(whole(-1)),
        start=_matrix,
        end=_matrix,
    ),
    "MaskedNetwork": Recipe(
        nn.MaskedNetwork,
        make=_network,
        take=_network_fields,
        n_inputs=items(whole(), least=1),
        n_outputs=items(whole(), least=1),
        width=whole(1, MAX_WIDTH),
        n_blocks=whole(0, MAX_BLOCKS),
        dropout=number(-math.ulp(0), 1),
        weights=items(_matrix),
        biases=items(_vector),
    ),
    "Chain": Recipe(
        nn.Chain,
        _check_chain,
        network=nn.MaskedNetwork,
        links=items(Part, least=1),
        shape=items(whole(1, MAX_FUNCTIONS), tuple),
        places=items(whole(-1), least=1),
        given="t, missing",
        optional=items(whole(1)),
    ),
    "RealColumn": Recipe(
        nn.RealColumn,
        must("knots", lambda f: len(f["knots"]) != 1, "is only one"),
        must("ends", _ends_fit, "must lie outside the knots"),
        knots="K, limited, rising, empty",
        values="K, limited, rising, empty",
        slopes="K, limited, positive, empty",
        tails="2, not negative",
        ends="2, infinite",
        inset="2, not negative",
    ),
    "CircleColumn": Recipe(nn.CircleColumn, period=number(0), start=number()),
    "CodeColumn": Recipe(nn.CodeColumn, size=whole(), first=whole(-(2**53)), has_order=bool),
    "AtomColumn": Recipe(nn.AtomColumn, value=number(), rest=nn.RealColumn),
    "TableDensity": Recipe(
        nn.TableDensity,
        _check_table,
        density=nn.PartsDensity | nn.StandardizedDensity,
        columns=items(nn.TableColumn, least=1),
    ),
}
