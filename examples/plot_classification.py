"""
Classification by densities
===========================

One density for each class and Bayes' rule give a classifier that knows its classes: it has
probabilities, and it can refuse a row that none of them explains.

All densities share their Fourier features and their base measure, so one Gram matrix normalizes
them all.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits, make_moons
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from qaffde import QAFFDEClassifier

COLORS = ("#0072B2", "#D55E00")
X, y = make_moons(800, noise=0.2, random_state=0)
model = QAFFDEClassifier(method="generative", random_state=0).fit(X, y)

# %%
# ``predict_proba`` is the posterior, ``log_density`` the log-density under each class. A class is
# always the most probable one, even far from all rows; the density says that there is nothing
# there. Below the level that 99 in 100 training rows reach, the row is refused.

level = np.quantile(model.log_density(X).max(axis=1), 0.01)
x, y_axis = np.linspace(-2.5, 3.5, 241), np.linspace(-2.2, 2.7, 197)
grid = np.stack(np.meshgrid(x, y_axis), axis=-1)
rows = grid.reshape(-1, 2)
posterior = model.predict_proba(rows)[:, 1].reshape(grid.shape[:2])
best = model.log_density(rows).max(axis=1).reshape(grid.shape[:2])

figure, axes = plt.subplots(1, 2, figsize=(9.5, 4), sharey=True, layout="constrained")
image = axes[0].pcolormesh(x, y_axis, posterior, cmap="RdBu_r", vmin=0, vmax=1, rasterized=True)
figure.colorbar(image, ax=axes[0], label="probability of class 1")
axes[0].set_title("probability", loc="left")
known = np.where(best > level, posterior, np.nan)
axes[1].pcolormesh(x, y_axis, known, cmap="RdBu_r", vmin=0, vmax=1, rasterized=True)
axes[1].set_title("rows that no class explains are refused", loc="left")
axes[1].set_facecolor("0.92")
for ax in axes:
    ax.scatter(*X.T, s=7, c=np.array(COLORS)[y], edgecolors="white", linewidths=0.3)

# %%
# Digits
# ------
# Images of 8 × 8 pixels are 64 columns, too many for a density of the pixels. The classifier takes
# principal components, and chooses how to read the density matrices by the log-loss of held-out
# rows.

images, digits = load_digits(return_X_y=True)
train, test, y_train, y_test = train_test_split(images / 16, digits, test_size=0.4, random_state=0)
model = QAFFDEClassifier(250, random_state=0).fit(train, y_train)
print(f"accuracy {model.score(test, y_test):.3f}")
print(f"log-loss {log_loss(y_test, model.predict_proba(test)):.3f}")
print(f"{model.n_components_} components, read as {model.measurement_!r}")

# %%
# Where it is wrong, it tends to know: most errors are among the rows whose winner is least
# probable.

confidence = model.predict_proba(test).max(axis=1)
wrong = model.predict(test) != y_test
for share in (0.0, 0.02, 0.05, 0.1):
    kept = confidence >= np.quantile(confidence, share)
    print(f"without the least certain {share:>3.0%}: {wrong[kept].sum():>2} wrong of {kept.sum()}")

figure, axes = plt.subplots(1, 8, figsize=(9.5, 2), layout="constrained")
for ax, i in zip(axes, np.argsort(confidence), strict=False):
    ax.imshow(test[i].reshape(8, 8), cmap="Greys")
    ax.set_title(f"is {y_test[i]}\nsays {model.predict(test[i : i + 1])[0]}", fontsize=10)
    ax.set(xticks=[], yticks=[])
_ = figure.suptitle("the least certain", fontsize=10)
