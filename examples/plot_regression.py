"""
Regression with intervals
=========================

A prediction without its uncertainty is half an answer. :class:`~qaffde.QAFFDERegressor` predicts
the whole distribution of y given a row: means, quantiles, intervals and draws are those of one
density, and nothing needs tuning.

Progression of diabetes in 442 patients (scikit-learn), by ten measurements. A quarter of the
patients is kept for the end.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from qaffde import QAFFDERegressor, Real
from qaffde.plot import CalibrationDisplay

X, y = load_diabetes(return_X_y=True, as_frame=True)
X, fresh, y, observed = train_test_split(X, y, test_size=0.25, random_state=0)
model = QAFFDERegressor(target=Real(lower=0), random_state=0).fit(X, y)
print(f"R² {model.score(fresh, observed):.2f}")

# %%
# Intervals
# ---------
# Nine in ten patients should lie in their intervals, which are wide for some and narrow for
# others. ``target=Real(lower=0)`` says that y is positive, so no interval goes below zero.

low, high = model.predict_interval(fresh, 0.9).T
mean = model.predict(fresh)
order = np.argsort(mean)
figure, ax = plt.subplots(figsize=(8, 3.2), layout="constrained")
place = np.arange(len(fresh))
ax.vlines(place, low[order], high[order], color="#0072B2", alpha=0.35, lw=3, label="90 % interval")
ax.plot(place, mean[order], color="#0072B2", label="mean")
ax.plot(place, observed.to_numpy()[order], ".", color="0.25", label="observed")
ax.set(xlabel="patients, by their mean", ylabel="progression")
_ = ax.legend(frameon=False, ncols=3)

# %%
# Calibration
# -----------
# If the distributions are right, the distribution function at what was observed is uniform, and
# an interval of 50 % holds half of the patients.

_ = CalibrationDisplay.from_estimator(model, fresh, observed)

# %%
# One patient
# -----------
# ``predict_distribution`` has the density itself, with quantiles, moments and draws.

one = model.predict_distribution(fresh[:1])
beyond = 1 - one.cdf(torch.tensor([200.0])).item()
print(f"mean {one.mean.item():.0f}, standard deviation {one.stddev.item():.0f}")
print(f"more than 200 with probability {beyond:.2f}")
