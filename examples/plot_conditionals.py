"""
Marginals, conditionals and missing values
==========================================

A fitted density can be taken apart exactly: integrate columns out, fix others, fill gaps. Nothing
is simulated.

Four measurements of 569 tumours (the breast cancer data of scikit-learn), a data frame with names.
A fifth of the rows is kept for the end.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from qaffde import QAFFDE, DensityDisplay

cells = load_breast_cancer(as_frame=True).data.rename(
    columns=lambda name: name.removeprefix("mean ")
)
cells = cells[["radius", "texture", "smoothness", "concave points"]]
cells, fresh = train_test_split(cells, test_size=0.2, random_state=0)
model = QAFFDE(random_state=0).fit(cells)

# %%
# Marginals
# ---------
# ``marginal`` integrates all other columns out. The picture has every column and every pair, in
# closed form; above the diagonal are the rows themselves.

_ = DensityDisplay.from_estimator(model, cells, kind="pairs")

# %%
# Conditionals
# ------------
# ``condition`` fixes columns, and returns the density of the others: a density with the same
# methods. Large tumours have more concave points:

for radius in (10, 14, 18, 22):
    points = model.condition({"radius": radius}).marginal(["concave points"])
    low, median, high = points.ppf([0.05, 0.5, 0.95])
    print(f"radius {radius}: median {median:.3f}, nine in ten between {low:.3f} and {high:.3f}")

_ = DensityDisplay.from_estimator(
    model, kind="slices", columns=["concave points"], given={"radius": [10, 14, 18, 22]}
)

# %%
# No tumour has less than no concave points, but nothing told the model: with four columns its base
# is a mixture of Gaussians, which ends nowhere. Where that matters, ``columns=Real(lower=0)`` ends
# the columns, and no mass lies beyond.
#
# Missing values
# --------------
# ``impute`` fills gaps from the conditional density of what the row lacks, given what it has. To
# see how well, the values of one column are hidden in all fresh rows, and put back. The mean of
# the column is what one would fall back on.

for column in fresh:
    gaps = fresh.assign(**{column: np.nan})
    filled = model.impute(gaps, method="mean")[column]
    error = np.sqrt(np.mean((filled - fresh[column]) ** 2))
    naive = np.sqrt(np.mean((cells[column].mean() - fresh[column]) ** 2))
    print(f"{column:<14} error {error:.4f}, by the mean of the column {naive:.4f}")

# %%
# The texture has little to do with the other columns, so knowing them helps little. That is the
# data, not the method.
#
# A mean is the best single guess, but rows that are filled with means are too much alike.
# ``method="sample"``, the default, draws from the conditional density instead, so that the spread
# stays right:

gaps = fresh.assign(**{"smoothness": np.nan, "concave points": np.nan})
drawn = model.impute(gaps, random_state=0)
means = model.impute(gaps, method="mean")
figure, axes = plt.subplots(
    1, 3, figsize=(9.5, 3.3), sharex=True, sharey=True, layout="constrained"
)
for ax, rows, title in zip(
    axes, (fresh, drawn, means), ("observed", "drawn", "means"), strict=True
):
    ax.scatter(rows["smoothness"], rows["concave points"], s=16, color="#0072B2", lw=0)
    ax.set_title(f"{title}: smoothness ± {rows['smoothness'].std():.4f}", loc="left")
    ax.set(xlabel="smoothness")
    ax.spines[["top", "right"]].set_visible(False)
_ = axes[0].set(ylabel="concave points")
