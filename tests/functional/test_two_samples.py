"""Permutation tests by sums of groups, against the same by loops over rows."""

import pytest
import torch

from qaffde.functional import two_samples


def generator():
    return torch.Generator().manual_seed(0)


def test_distances_are_those_of_means():
    phi = torch.randn(12, 5, generator=generator())
    groups = phi.reshape(4, 3, 5).sum(1)
    labels = two_samples.random_labels(2, 2, 6, generator())
    blocks = torch.tensor([0, 0, 1, 1, 1])
    found = two_samples.squared_distances(groups, torch.full((4,), 3.0), labels, blocks)
    for row, T in zip(labels, found, strict=True):
        second = row.repeat_interleave(3)
        d = phi[second].mean(0) - phi[~second].mean(0)
        assert torch.allclose(T, torch.stack([d[:2].square().sum(), d[2:].square().sum()]))


def test_labels_keep_the_numbers_of_groups():
    labels = two_samples.random_labels(3, 5, 50, generator())
    assert labels[0].tolist() == [False] * 3 + [True] * 5
    assert (labels.sum(1) == 5).all()
    assert len(labels.unique(dim=0)) > 20


def test_step_down_is_between_one_test_and_bonferroni():
    z = torch.randn(400, 6, generator=generator())
    z[0] = torch.tensor([4.0, 2.5, 2.0, 0.0, -1.0, 1.0])
    corrected = two_samples.step_down(z)
    alone = torch.tensor([two_samples.share_above(column) for column in z.T])
    assert (corrected >= alone - 1e-9).all()
    assert (corrected <= 6 * alone + 1e-9).all()
    order = z[0].argsort(descending=True)
    assert (corrected[order].diff() >= 0).all()


def test_constant_features_have_no_distance():
    z = two_samples.standardized(torch.zeros(10, 2))
    assert (z == 0).all()
    assert two_samples.share_above(z[:, 0]) == pytest.approx(1)
