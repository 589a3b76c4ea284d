"""Augmentation against what it says it does, image by image."""

import pytest
import torch

from experiments.images.augment import Augmentation, RandomFlip, RandomShift

IMAGES = torch.rand(200, 2, 5, 7, generator=torch.Generator().manual_seed(0))


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def shifts(image, pixels):
    """All shifts of one image, with its edge repeated."""
    _, height, width = image.shape
    for down in range(-pixels, pixels + 1):
        for right in range(-pixels, pixels + 1):
            rows = (torch.arange(height) + down).clamp(0, height - 1)
            columns = (torch.arange(width) + right).clamp(0, width - 1)
            yield image[:, rows][:, :, columns]


def test_shift_is_one_of_all_shifts():
    moved = RandomShift(2)(IMAGES, seeded())
    found = set()
    for image, result in zip(IMAGES, moved, strict=True):
        matches = [i for i, s in enumerate(shifts(image, 2)) if torch.equal(s, result)]
        assert len(matches) == 1
        found |= set(matches)
    assert len(found) == 25


def test_flip_is_left_to_right_for_half_of_them():
    flipped = RandomFlip()(IMAGES, seeded())
    mirrored = torch.tensor(
        [torch.equal(a, b.flip(2)) for a, b in zip(flipped, IMAGES, strict=True)]
    )
    same = torch.tensor([torch.equal(a, b) for a, b in zip(flipped, IMAGES, strict=True)])
    assert (mirrored ^ same).all()
    assert 70 < int(mirrored.sum()) < 130


def test_parts_follow_one_another():
    both = Augmentation(RandomShift(1), RandomFlip())(IMAGES, seeded())
    generator = seeded()
    expected = RandomFlip()(RandomShift(1)(IMAGES, generator), generator)
    assert torch.equal(both, expected)


def test_randomness_is_the_generator_s():
    state = torch.get_rng_state()
    first, second, other = (RandomShift(2)(IMAGES, seeded(seed)) for seed in (0, 0, 1))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("pixels", [0, -1, 1.5, True])
def test_a_shift_is_by_whole_pixels(pixels):
    with pytest.raises(ValueError, match="must be a whole number of at least 1"):
        RandomShift(pixels)
