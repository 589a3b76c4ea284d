"""The paper's convolutional network."""

import pytest
import torch

from experiments.images.lenet import LeNet


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (2, 5, 7)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shape_and_dtype(shape, dtype):
    codes = LeNet(shape).to(dtype)(torch.rand(3, *shape, dtype=dtype))
    assert (codes.shape, codes.dtype) == ((3, 84), dtype)


def test_sizes_are_the_paper_s():
    shapes = [tuple(p.shape) for p in LeNet((1, 28, 28)).parameters()]
    assert shapes[::2] == [(20, 1, 5, 5), (50, 20, 5, 5), (84, 50 * 7 * 7)]


def test_gradients():
    network = LeNet((1, 4, 4), 2, (2, 2)).double()
    images = torch.rand(2, 1, 4, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(network, (images,))
    network(images).sum().backward()
    assert all(p.grad is not None for p in network.parameters())


def test_first_weights_come_from_the_generator_alone():
    state = torch.get_rng_state()
    first, second = LeNet((1, 8, 8)), LeNet((1, 8, 8))
    other = LeNet((1, 8, 8), generator=torch.Generator().manual_seed(1))
    image = torch.ones(1, 1, 8, 8)
    assert torch.equal(first(image), second(image))
    assert not torch.equal(first(image), other(image))
    assert torch.equal(torch.get_rng_state(), state)


def test_images_may_be_too_small():
    with pytest.raises(ValueError, match=r"image_shape=\(1, 3, 9\) is too small.*4 by 4"):
        LeNet((1, 3, 9))


def test_dropout_is_for_training():
    network, plain = LeNet((1, 8, 8), dropout=0.5), LeNet((1, 8, 8))
    image = torch.ones(1, 1, 8, 8)
    assert torch.equal(network.eval()(image), plain(image))
    seen = {tuple(network.train()(image)[0].tolist()) for _ in range(5)}
    assert len(seen) == 5
    with pytest.raises(ValueError, match=r"dropout=1 must be a number in \[0, 1\)"):
        LeNet((1, 8, 8), dropout=1)
